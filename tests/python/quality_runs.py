"""The commands of examples/quality run, and draw."""
import argparse
import importlib.util
import os
import subprocess
import sys
import tempfile

from harness import check, end

if not importlib.util.find_spec("torch"):
    print("skip no PyTorch for", sys.executable)
    sys.exit()
HERE = os.path.dirname(os.path.abspath(__file__))
FOLDER = os.path.join(HERE, "../../examples/quality")


def run(script, *words):
    return subprocess.run(
        [sys.executable, os.path.join(FOLDER, script), "--steps", "2",
         "--rates", "1e-3", "--seeds", "1", "--jobs", "2", "--device", "cpu",
         *words], capture_output=True, text=True)


with tempfile.TemporaryDirectory() as folder:
    for script, words, lines in (("mqar.py", ("--pairs", "4,8"), 4),
                                 ("track.py", ("--groups", "S3,S5"), 4),
                                 ("regress.py", (), 4), ("text.py", (), 2)):
        log = os.path.join(folder, script + ".log")
        got = run(script, "--rules", "linear,hybrid", "--log", log, *words)
        rows = [line for line in got.stdout.splitlines()
                if line.startswith(("| linear", "| hybrid"))]
        check(script, got.returncode == 0 and len(rows) == 2
              and all("±" in row for row in rows), got.stderr[-400:])
        with open(log, encoding="utf-8") as f:
            check(script + ": a line each run", len(f.readlines()) == lines)
    log = os.path.join(folder, "track.py.log")
    svg = os.path.join(folder, "track.svg")
    got = run("track.py", "--rules", "linear,gla", "--groups", "S3", "--log",
              log, "--svg", svg)
    with open(log, encoding="utf-8") as f:
        check("what the log has is not run again", len(f.readlines()) == 5
              and "1 of 1" in got.stderr and "| linear | 0." in got.stdout,
              got.stderr)
    shown = run("track.py", "--rules", "linear,gla", "--groups", "S3,parity",
                "--log", log, "--show")
    check("--show runs nothing",
          shown.stdout == got.stdout and not shown.stderr, shown.stderr)
    with open(svg, encoding="utf-8") as f:
        check("curves are drawn", "gla" in f.read())

# Runs side by side are what each is alone; regress.py has floats.
sys.path.insert(0, FOLDER)
import regress                                      # noqa: E402
import sweep                                        # noqa: E402
import track                                        # noqa: E402
import training                                     # noqa: E402
for task, name, rule in ((track, "S3", "mamba3"), (track, "S3", "softmax"),
                         (regress, "unequal energies", "precond_gdn")):
    a = argparse.Namespace(
        device="cpu", jobs=1, width=32, heads=2, blocks=2, taps=2, steps=3,
        batch_size=4, length=8, test=16, keep=0)
    runs = [(1e-2, 0), (1e-3, 1), (1e-3, 0)]
    rows = sweep.attempt((task.__name__, a, name, rule, runs))[1]
    for row, own in zip(rows, runs):
        alone = sweep.attempt((task.__name__, a, name, rule, [own]))[1][0]
        off = max(abs(x - y) / x for x, y in zip(row["curve"], alone["curve"]))
        check(f"{name}, {rule}, {own} alone", off < 1e-5
              and (row["rate"], row["seed"]) == own, f"{off:.1e} off")
    check("other runs differ", rows[0]["curve"] != rows[2]["curve"]
          and rows[1]["curve"][0] != rows[2]["curve"][0])


# Some at a time take turns; one that fails ends alone.
active, most = set(), 0


def training_of(steps):
    global most
    active.add(steps)
    for i in range(steps):
        most = max(most, len(active))
        yield
    active.discard(steps)
    if steps == 3:
        raise ValueError(steps)
    return 10 * steps


found = list(training.take_turns(map(training_of, (7, 2, 3, 1, 6)), 2, "cpu"))
check("turns", most == 2 and sorted(i for i, _ in found) == list(range(5))
      and sorted(x for _, x in found if isinstance(x, int)) == [10, 20, 60, 70]
      and found[0] == (1, 20), (most, found))
got = subprocess.run([sys.executable, os.path.join(FOLDER, "curves.py"),
                      "--device", "cpu", "--steps", "3", "--engines",
                      "flin,token loop"], capture_output=True, text=True)
check("curves.py", got.returncode == 0 and "token loop" in got.stdout
      and float(got.stdout.split()[-1]) < 1e-5, got.stdout + got.stderr[-400:])
got = run("track.py", "--rules", "lstm")
check("an unknown rule", got.returncode == 2
      and "there is no rule 'lstm'" in got.stderr, got.stderr)
got = run("mqar.py", "--rules", "linear", "--pairs", "40")
check("too many pairs", "want a length of 120" in got.stderr, got.stderr[-400:])
end()
