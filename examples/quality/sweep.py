"""Trains models by rule, learning rate and seed, all alike; prints a table of
each rule's best rate, mean and spread over seeds; draws learning curves."""
import argparse
import importlib
import json
import multiprocessing
import os
import statistics
import sys
import time
import traceback

import models
import torch
import training

IGNORED = training.IGNORED
POINTS = 25                     # of a curve
# What a run was made of, beside its task, rule, rate and seed.
# keep: what the bias of log decays begins with, and less a rate's; at 4 a token
# takes a 900th of a state, at 0 a 23rd, and rates are as variants begin them.
SIZES = ("width", "heads", "blocks", "taps", "steps", "batch_size", "length",
         "keep")


def arguments(about, sizes, **tasks):
    """The command line; `sizes`: what small and full runs are made of."""
    p = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("--rules", default="all", metavar="A,B",
                   help="of " + ", ".join(models.NAMES))
    for name, (values, default) in tasks.items():
        p.add_argument("--" + name, default=default, metavar="A,B",
                       help=values)
    p.add_argument("--full", action="store_true",
                   help="the larger sizes, for a GPU")
    p.add_argument("--seeds", type=int, default=3)
    p.add_argument("--rates", default="1e-3,3e-3,1e-2")
    for name in SIZES:
        p.add_argument("--" + name.replace("_", "-"), type=int)
    p.add_argument("--jobs", type=int,
                   help="rules side by side (one for each core; on a GPU 5)")
    p.add_argument("--device", default="cuda" if torch.cuda.is_available()
                   else "cpu")
    p.add_argument("--svg", metavar="FILE", help="learning curves")
    p.add_argument("--log", metavar="FILE",
                   help="a line of JSON each run; what it has is not run again")
    p.add_argument("--show", action="store_true",
                   help="what the log has; nothing is run")
    a = p.parse_args()
    a.rules = models.NAMES if a.rules == "all" else a.rules.split(",")
    for rule in a.rules:
        if rule not in models.NAMES:
            p.error(f"there is no rule '{rule}'; rules: "
                    + ", ".join(models.NAMES))
    a.rates = [float(r) for r in a.rates.split(",")]
    for name, value in {"keep": 0, **sizes[a.full]}.items():
        if getattr(a, name, None) is None:
            setattr(a, name, value)
    if not a.jobs:
        a.jobs = 5 if a.device != "cpu" else os.cpu_count() or 1
    return a


def made_of(a):
    return {name: getattr(a, name) for name in SIZES}


def attempts(jobs, a):
    """Of each job: it, the rows of its runs, or none and what went wrong."""
    for i, rows in training.take_turns(map(train, jobs), a.jobs, a.device):
        wrong = isinstance(rows, Exception)
        yield jobs[i], [] if wrong else rows, "".join(
            traceback.format_exception(rows)) if wrong else ""


def attempt(job):
    return next(attempts([job], job[1]))


def side_by_side(jobs, a):
    """On a GPU in streams, else in processes."""
    if a.device != "cpu":
        yield from attempts(jobs, a)
        return
    with multiprocessing.get_context("spawn").Pool(a.jobs) as pool:
        yield from pool.imap_unordered(attempt, jobs)


def train(job):
    """All runs of a rule that are still to be made, as one model: a generator,
    which returns rows."""
    module, a, name, rule, runs = job
    task = importlib.import_module(module)
    if a.device == "cpu":
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // a.jobs))
    start = time.monotonic()
    seeds = sorted({seed for _, seed in runs})
    draws = [torch.Generator(a.device).manual_seed(seed) for seed in seeds]
    own = torch.tensor([seeds.index(seed) for _, seed in runs],
                       device=a.device)

    def draw(n):
        parts = zip(*(task.batch(a, name, d, n * a.batch_size)
                      for d in draws))
        return [torch.stack(part, -1)[..., own].unflatten(
            0, (n, a.batch_size)) for part in parts]

    model = models.model([seed for _, seed in runs], rule,
                         *task.sizes(a, name), a.width, a.heads, a.blocks,
                         a.taps, getattr(task, "numbers", False), a.keep)
    lost = yield from training.train(
        model, draw, [rate for rate, _ in runs], a.steps, a.device)
    with torch.no_grad():
        scores = task.scores(a, name, model)
    lost = [part.mean(0).tolist() for part in
            lost.cpu().split(max(1, a.steps // POINTS))]
    return [{"task": name, "rule": rule, "rate": rate, "seed": seed,
             "scores": {what: x[i] for what, x in scores.items()},
             "curve": [x[i] for x in lost], **made_of(a),
             "parameters": sum(p.numel() for p in model.parameters())
             // len(runs),
             "seconds": round(time.monotonic() - start, 1)}
            for i, (rate, seed) in enumerate(runs)]


def same_to_all(model, x, device):
    """[B, T, ...], given to each run."""
    return x.to(device)[..., None].expand(*x.shape, model.runs)


def accuracy(model, x, label, device):
    """The part of what is asked that is answered right, by each run."""
    label = label.to(device)[..., None]
    asked = label != IGNORED
    right = (model(same_to_all(model, x, device)).argmax(-1) == label) & asked
    return (right.sum((0, 1)) / asked.sum()).tolist()


def score(row):
    """What rates are chosen by: the first."""
    return next(iter(row["scores"].values()))


def best(rows, higher):
    """The rows of the learning rate with the best mean."""
    by_rate = {}
    for row in rows:
        by_rate.setdefault(row["rate"], []).append(row)

    def mean(rate):
        m = statistics.fmean(map(score, by_rate[rate]))
        return (m if higher else -m) if m == m else -1e9
    return by_rate[max(by_rate, key=mean)] if rows else []


def of(rows, rule, name):
    return [r for r in rows if (r["rule"], r["task"]) == (rule, name)]


def cell(scores):
    """Mean and spread."""
    if any(x != x for x in scores):
        return "diverges"
    spread = statistics.stdev(scores) if len(scores) > 1 else 0
    return f"{statistics.fmean(scores):.3f} ± {spread:.3f}" if scores else ""


def table(a, task, names, rows):
    columns = [(name, what) for name in names for what in next(
        (r["scores"] for r in rows if r["task"] == name), ())]
    print("|  | " + " | ".join(
        f"{name}: {what}" for name, what in columns) + " |")
    print("|---|" + "---|" * len(columns))
    for rule in a.rules:
        cells = []
        for name, what in columns:
            scores = [r["scores"][what]
                      for r in best(of(rows, rule, name), task.higher)]
            cells.append(cell(scores))
        if any(cells):
            print(f"| {rule} | " + " | ".join(cells) + " |", flush=True)


def draw(a, task, names, rows):
    """A file for each task, where there are several."""
    for name in names:
        series = []
        for rule in a.rules:
            own = best(of(rows, rule, name), task.higher)
            if own:
                step = a.steps / len(own[0]["curve"])
                series.append((rule, [
                    ((i + 0.5) * step, statistics.fmean(lost))
                    for i, lost in enumerate(zip(*(r["curve"]
                                                   for r in own)))]))
        end = "" if len(names) == 1 else "-" + name.replace(" ", "-")
        stem, kind = os.path.splitext(a.svg)
        if not series:
            continue
        with open(stem + end + kind, "w", encoding="utf-8") as f:
            f.write(models.flin.curves(dict(series), title=name, x="step",
                                       y="loss"))


def earlier(a):
    """The runs that the log has, made as these are to be."""
    if not a.log or not os.path.exists(a.log):
        return []
    with open(a.log, encoding="utf-8") as f:
        rows = [json.loads(line) for line in f if line.endswith("}\n")]
    return [r for r in rows if made_of(a).items() <= r.items()]


def brief(row):
    """A line of the log."""
    return json.dumps({**row, "curve": [float(f"{x:.4g}")
                                        for x in row["curve"]]}) + "\n"


def make(a, jobs, rows):
    """Runs them, some side by side, and adds to rows. How many failed."""
    start, failed = time.monotonic(), 0
    log = open(a.log, "a", encoding="utf-8") if a.log else None
    for i, (job, found, wrong) in enumerate(side_by_side(jobs, a)):
        rows += found
        failed += not found
        if log:
            log.write("".join(map(brief, found)))
            log.flush()
        print(f"\r{i + 1} of {len(jobs)}, {time.monotonic() - start:.0f} s: "
              f"{job[2]}, {job[3]}, "
              + " ".join(f"{score(row):.3f}" for row in found) + wrong
              + "\033[K", end="\n" if wrong else "", file=sys.stderr,
              flush=True)
    print(file=sys.stderr)
    return failed


def run(module, a, names):
    """All runs of that module's task, by name, some side by side."""
    task = importlib.import_module(module)
    rows, jobs, failed = earlier(a), [], 0
    made = {(r["task"], r["rule"], r["rate"], r["seed"]) for r in rows}
    for name in names:
        for rule in a.rules:
            runs = [(rate, seed) for rate in a.rates
                    for seed in range(a.seeds)
                    if (name, rule, rate, seed) not in made]
            if runs and not a.show:
                jobs.append((module, a, name, rule, runs))
    if jobs:
        failed = make(a, jobs, rows)
    table(a, task, names, rows)
    if a.svg:
        draw(a, task, names, rows)
    if failed:
        sys.exit(f"{failed} of {len(jobs)} failed")
