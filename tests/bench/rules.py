"""What rules take on a GPU, in microseconds: flin alone, so that two builds of
it, or two ways of scheduling, can be compared case by case.

    python3 tests/bench/rules.py CASE...

A CASE is RULE,SHAPE,fwd|both and then, as wanted: f32 (gates in float32, where
peers.py has them in the model's type), kernels (each kernel's share too),
NAME=VALUE (an environment variable for this case alone; the case runs in a
process of its own). A RULE is a file of stdlib/ or a path, a SHAPE one of
peers.py's or B:T:H:D. --warm fills the cache of kernels and times nothing.
FLIN_LIB says which library. Times are of CUDA graphs: medians, inputs rotate
over more memory than the L2 cache has."""
import os
import subprocess
import sys

from timing import median
from tree import HERE                               # noqa: F401
import torch
import torch.nn.functional as F

import flin

SHAPES = {"S": (4, 2048, 16, 128), "M": (2, 16384, 16, 128),
          "96": (1, 8192, 96, 128), "L": (1, 32768, 16, 128)}
CACHE = 64 << 20
# How long a named axis is where it is not K's or V's: half of it (rotations).
HALF = "p"
GATES = {"log_decay": lambda *s: F.logsigmoid(torch.randn(
            s, device="cuda")).clamp(-5),
         "decay": lambda *s: torch.rand(s, device="cuda"),
         "unit": lambda *s: torch.rand(s, device="cuda"),
         "angle": lambda *s: torch.rand(s, device="cuda"),
         "positive": lambda *s: torch.rand(s, device="cuda") + .01}


def values(domain, shape):
    x = torch.randn(shape, device="cuda")
    return F.normalize(x, dim=-1) if domain == "unit_norm" else x


def inputs(variant, shape, float_gates):
    B, T, H, D = shape
    sizes = {a: n or (D // 2 if a == HALF else D)
             for a, n in variant.sizes.items()}
    x = {}
    for i in variant.inputs:
        dims = [sizes.get(a, D) for a in i.axes]
        whole = ([B, T, H] if i.timed else [H]) + dims
        make = GATES.get(i.domain)
        t = make(*whole) if make else values(i.domain, whole)
        wide = not i.timed or not dims or (float_gates and make)
        x[i.name] = t.float() if wide else t.bfloat16()
    return x


def called(variant, x, way):
    if way == "fwd":
        return lambda: variant(**x)[0]
    leaves = [t.requires_grad_() for t in x.values()]
    dy = torch.randn_like(variant(**x)[0])
    return lambda: torch.autograd.grad(variant(**x)[0], leaves, dy,
                                       allow_unused=True)


def kernels(f):
    """Microseconds of each kernel of a call, by name."""
    from torch.profiler import ProfilerActivity, profile
    with profile(activities=[ProfilerActivity.CUDA]) as p:
        for _ in range(5):
            f()
        torch.cuda.synchronize()
    spent = {}
    for e in p.events():
        if e.device_type != torch.autograd.DeviceType.CUDA:
            continue
        spent.setdefault(e.name, []).append(e.device_time)
    return " ".join(f"{n.split('(')[0]}={sorted(t)[len(t) // 2]:.1f}"
                    + (f"x{len(t) // 5}" if len(t) > 5 else "")
                    for n, t in spent.items())


def measure(rule, shape, way, options, warm):
    variant = flin.load(rule)
    size = SHAPES.get(shape) or tuple(map(int, shape.split(":")))
    def make():
        torch.manual_seed(0)
        return inputs(variant, size, "f32" in options)
    x = make()
    with torch.set_grad_enabled(way != "fwd"):
        first = called(variant, x, way)
        first()
        torch.cuda.synchronize()
        if warm:
            return "warm"
        held = sum(t.nbytes for t in x.values())
        n = 1 if way != "fwd" else min(8, 1 + 3 * CACHE // held)
        calls = [first] + [called(variant, make(), way) for _ in range(n - 1)]
        for f in calls:
            f()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for f in calls:
                f()
        us = 1000 * median(graph.replay, 11) / len(calls)
        said = f"{us:.1f}"
        if "kernels" in options:
            said += " " + kernels(first)
        return said


def one(case, warm):
    rule, shape, way, *options = case.split(",")
    try:
        return measure(rule, shape, way, options, warm)
    except Exception as e:
        return f"{type(e).__name__}: {e}".splitlines()[0][:150]


def main(words):
    """Cases with the same variables run in one process, which reads them
    once; the others here."""
    flags = [w for w in words if w.startswith("-")]
    groups = {}
    for case in (w for w in words if w not in flags):
        parts = case.split(",")
        own = tuple(p for p in parts if "=" in p)
        groups.setdefault(own, []).append(
            ",".join(p for p in parts if "=" not in p))
    for own, cases in groups.items():
        if own:
            run = subprocess.run(
                [sys.executable, __file__, *flags, *cases],
                env=dict(os.environ, **dict(o.split("=", 1) for o in own)),
                stdout=subprocess.PIPE, text=True)
            for line in run.stdout.splitlines():
                print(line, "|", *own, flush=True)
            continue
        for case in cases:
            print(case, one(case, "--warm" in flags), flush=True)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(sys.argv[1:])
