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

import models
import torch
import torch.nn.functional as F

IGNORED = -100                  # a token that nothing is asked of


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
    p.add_argument("--steps", type=int)
    p.add_argument("--jobs", type=int, default=os.cpu_count(),
                   help="side by side (one for each core)")
    p.add_argument("--device", default="cuda" if torch.cuda.is_available()
                   else "cpu")
    p.add_argument("--svg", metavar="FILE", help="learning curves")
    p.add_argument("--log", metavar="FILE", help="a line of JSON each run")
    a = p.parse_args()
    a.rules = models.NAMES if a.rules == "all" else a.rules.split(",")
    for rule in a.rules:
        if rule not in models.NAMES:
            p.error(f"there is no rule '{rule}'; rules: "
                    + ", ".join(models.NAMES))
    a.rates = [float(r) for r in a.rates.split(",")]
    for name, value in sizes[a.full].items():
        if getattr(a, name, None) is None:
            setattr(a, name, value)
    return a


def train(job):
    """One model: its score, and the losses on the way."""
    module, a, name, rule, rate, seed = job
    task = importlib.import_module(module)
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // a.jobs))
    torch.manual_seed(seed)
    tokens, classes = task.sizes(a, name)
    model = models.model(rule, tokens, classes, a.width, a.heads,
                         a.blocks).to(a.device)
    optimiser = torch.optim.AdamW(model.parameters(), rate,
                                  betas=(0.9, 0.95), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, rate, a.steps,
                                                   pct_start=0.1)
    draw = torch.Generator().manual_seed(seed)
    curve, start = [], time.monotonic()
    for step in range(a.steps):
        x, label = (t.to(a.device) for t in task.batch(a, name, draw))
        loss = F.cross_entropy(model(x).flatten(0, 1), label.flatten(),
                               ignore_index=IGNORED)
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1)
        optimiser.step()
        schedule.step()
        if step % max(1, a.steps // 50) == 0:
            curve.append((step, loss.item()))
    with torch.no_grad():
        score = task.score(a, name, model)
    return {"task": name, "rule": rule, "rate": rate, "seed": seed,
            "score": score, "curve": curve, "steps": a.steps,
            "parameters": sum(p.numel() for p in model.parameters()),
            "seconds": time.monotonic() - start}


def accuracy(model, x, label):
    """The part of what is asked that is answered right."""
    asked = label != IGNORED
    right = (model(x).argmax(-1) == label) & asked
    return float(right.sum() / asked.sum())


def best(rows, higher):
    """The rows of the learning rate with the best mean."""
    by_rate = {}
    for row in rows:
        by_rate.setdefault(row["rate"], []).append(row)
    def mean(rate):
        m = statistics.fmean(row["score"] for row in by_rate[rate])
        return (m if higher else -m) if m == m else -1e9
    return by_rate[max(by_rate, key=mean)]


def table(a, task, names, rows):
    print("|  | " + " | ".join(names) + " |")
    print("|---|" + "---|" * len(names))
    for rule in a.rules:
        cells = []
        for name in names:
            own = [r for r in rows if (r["rule"], r["task"]) == (rule, name)]
            scores = [r["score"] for r in best(own, task.higher)]
            spread = statistics.stdev(scores) if len(scores) > 1 else 0
            cells.append(f"{statistics.fmean(scores):.3f} ± {spread:.3f}")
        print(f"| {rule} | " + " | ".join(cells) + " |", flush=True)


def draw(a, task, names, rows):
    try:
        import matplotlib
    except ImportError:
        sys.exit("--svg wants matplotlib (Debian: python3-matplotlib)")
    matplotlib.use("svg")
    from matplotlib import pyplot
    figure, parts = pyplot.subplots(1, len(names), squeeze=False,
                                    figsize=(5 * len(names), 4))
    for name, part in zip(names, parts[0]):
        for rule in a.rules:
            own = best([r for r in rows if (r["rule"], r["task"])
                        == (rule, name)], task.higher)
            steps = [s for s, _ in own[0]["curve"]]
            losses = [statistics.fmean(x) for x in zip(*(
                [loss for _, loss in r["curve"]] for r in own))]
            part.plot(steps, losses, label=rule)
        part.set_title(name)
        part.set_xlabel("step")
        part.set_ylabel("loss")
    parts[0][-1].legend(fontsize="x-small")
    figure.tight_layout()
    figure.savefig(a.svg)


def run(module, a, names):
    """All runs of that module's task, by name, some side by side."""
    task = importlib.import_module(module)
    jobs = [(module, a, name, rule, rate, seed) for name in names
            for rule in a.rules for rate in a.rates
            for seed in range(a.seeds)]
    rows, start = [], time.monotonic()
    log = open(a.log, "a", encoding="utf-8") if a.log else None
    with multiprocessing.get_context("spawn").Pool(a.jobs) as pool:
        for row in pool.imap_unordered(train, jobs):
            rows.append(row)
            if log:
                print(json.dumps(row), file=log, flush=True)
            print(f"\r{len(rows)} of {len(jobs)} runs, "
                  f"{time.monotonic() - start:.0f} s: {row['task']}, "
                  f"{row['rule']}, {row['rate']:g}, seed {row['seed']}: "
                  f"{row['score']:.3f}\033[K", end="", file=sys.stderr,
                  flush=True)
    print(file=sys.stderr)
    table(a, task, names, rows)
    if a.svg:
        draw(a, task, names, rows)
