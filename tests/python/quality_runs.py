"""The commands of examples/quality run, and draw."""
import os
import subprocess
import sys
import tempfile

from harness import check, end, wants_custom_op

wants_custom_op()
HERE = os.path.dirname(os.path.abspath(__file__))
FOLDER = os.path.join(HERE, "../../examples/quality")


def run(script, *words):
    return subprocess.run(
        [sys.executable, os.path.join(FOLDER, script), "--steps", "2",
         "--rates", "1e-3", "--seeds", "1", "--jobs", "2", "--device", "cpu",
         *words], capture_output=True, text=True)


with tempfile.TemporaryDirectory() as folder:
    for script, words in (("mqar.py", ("--pairs", "4,8")),
                          ("track.py", ("--groups", "S3,S5")),
                          ("text.py", ())):
        log = os.path.join(folder, script + ".log")
        got = run(script, "--rules", "linear,hybrid", "--log", log, *words)
        rows = [line for line in got.stdout.splitlines()
                if line.startswith(("| linear", "| hybrid"))]
        check(script, got.returncode == 0 and len(rows) == 2
              and all("±" in row for row in rows), got.stderr[-400:])
        with open(log, encoding="utf-8") as f:
            check(script + ": a line each run",
                  len(f.readlines()) == (4 if words else 2))
got = run("track.py", "--rules", "lstm")
check("an unknown rule", got.returncode == 2
      and "there is no rule 'lstm'" in got.stderr, got.stderr)
got = run("mqar.py", "--rules", "linear", "--pairs", "40")
check("too many pairs", "want a length of 120" in got.stderr, got.stderr[-400:])
end()
