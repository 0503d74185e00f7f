"""The program `flin`: the prompt, scripts, `flin check`, `flin new` ..."""
import os
import sys


def main() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    for program in (os.environ.get("FLIN_PROGRAM"),
                    os.path.join(here, "bin", "flin"),
                    os.path.join(here, "../../../build/flin")):
        if program and os.access(program, os.X_OK):
            os.execv(program, ["flin", *sys.argv[1:]])
    sys.exit("flin: the program is not to be had: build it (make) or name it "
             "in FLIN_PROGRAM")


if __name__ == "__main__":
    main()
