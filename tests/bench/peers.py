"""flin beside flash-linear-attention on one GPU, in one run: forward, eagerly
and as a CUDA graph, and how far both are from the float64 step.

    python3 tests/bench/peers.py warm OPS [SHAPES]  fills both compile caches
    python3 tests/bench/peers.py time [OPS [SHAPES]] [--backward]
    python3 tests/bench/peers.py error [OPS]
    python3 tests/bench/peers.py host          a call's microseconds on the CPU

OPS and SHAPES: names with commas; default: all. The peer is what is installed,
or peers/fla_src. Its ops compile and tune for minutes: warm them side by side
first, a process each, with TRITON_CACHE_DIR set. Medians; inputs rotate over
more memory than the L2 cache has; both get the same tensors."""
import importlib
import itertools
import json
import os
import statistics
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "../../lang/python"),
                os.path.join(HERE, "../../peers/fla_src")]
import torch                                        # noqa: E402
import torch.nn.functional as F                     # noqa: E402

import flin                                         # noqa: E402

SHAPES = {"S": (4, 2048, 16, 128), "M": (2, 16384, 16, 128),
          "96": (1, 8192, 96, 128), "L": (4, 4096, 64, 128)}
CACHE = 64 << 20                # more than the L2 of any GPU that is meant
RETENTION = """
local flin = require "flin"
return flin.variant {
  name  = "retention",
  input = { q = "t k", k = "t k", v = "t v", g = ": log_decay" },
  state = { S = "k v" },
  step  = function (x, s)
    local S = flin.exp(x.g) * s.S + flin.outer(x.k, x.v)
    return { S = S }, flin.dot(x.q, S)
  end,
}
"""


def normal(*shape):
    return torch.randn(shape, device="cuda", dtype=torch.bfloat16)


def keys(*shape):
    return F.normalize(normal(*shape).float(), dim=-1).bfloat16()


def gate(*shape):
    return F.logsigmoid(torch.randn(shape, device="cuda"))


def qkv(B, T, H, D):
    return {"q": normal(B, T, H, D), "k": keys(B, T, H, D),
            "v": normal(B, T, H, D)}


def scalar_gate(B, T, H, D):
    return dict(qkv(B, T, H, D), g=gate(B, T, H))


def key_gate(B, T, H, D):
    return dict(qkv(B, T, H, D), g=gate(B, T, H, D).clamp(-5).bfloat16())


def with_beta(make):
    return lambda B, T, H, D: dict(
        make(B, T, H, D), beta=torch.rand(B, T, H, device="cuda"))


def fixed_gate(B, T, H, D):
    heads = torch.arange(H, device="cuda", dtype=torch.float32)
    return dict(qkv(B, T, H, D), g=torch.log1p(-2. ** (-5 - heads)))


def rwkv6(B, T, H, D):
    x = key_gate(B, T, H, D)
    return {"r": x["q"], "k": x["k"], "v": x["v"], "w": x["g"],
            "u": torch.randn(H, D, device="cuda")}


def rwkv7(B, T, H, D):
    w = -0.6065306597 * torch.rand(B, T, H, D, device="cuda")
    return {"r": normal(B, T, H, D), "k": keys(B, T, H, D),
            "v": normal(B, T, H, D), "w": w.bfloat16(),
            "kappa": keys(B, T, H, D),
            "a": torch.rand(B, T, H, D, device="cuda").bfloat16()}


def lightning(B, T, H, D):
    heads = torch.arange(H, device="cuda", dtype=torch.float32)
    return dict(qkv(B, T, H, D), g=-8 / H * heads)


def two_steps(B, T, H, D):
    return {"q": normal(B, T, H, D), "k": keys(B, T, H, 2, D),
            "v": normal(B, T, H, 2, D), "g": gate(B, T, H),
            "beta": torch.rand(B, T, H, 2, device="cuda")}


def steps_as_tokens(x):
    return x.transpose(2, 3).flatten(1, 2).contiguous()


# Our variant, their function, inputs, options of both, what they call these.
OPS = {
    "retention": (RETENTION, "retention.chunk_retention", fixed_gate, {},
                  lambda q, k, v, g: dict(q=q, k=k, v=v)),
    "simple_gla": ("simple_gla", "simple_gla.chunk_simple_gla", scalar_gate,
                   {}, dict),
    "lightning": ("lightning", "lightning_attn.chunk_lightning_attn",
                  lightning, {"scale": 1.0}, lambda q, k, v, g: dict(
                      q=F.silu(q), k=F.silu(k), v=v, layer_idx=0,
                      num_layers=1)),
    "gla": ("gla", "gla.chunk_gla", key_gate, {}, dict),
    "delta": ("deltanet", "delta_rule.chunk_delta_rule", with_beta(qkv), {},
              dict),
    "gdn": ("gated_deltanet", "gated_delta_rule.chunk_gated_delta_rule",
            with_beta(scalar_gate), {}, dict),
    "kda": ("kda", "kda.chunk_kda", with_beta(key_gate), {}, dict),
    "deltaproduct": (
        "deltaproduct", "gated_delta_product.chunk_gated_delta_product",
        two_steps, {}, lambda q, k, v, g, beta: dict(
            q=q, g=g, num_householder=2, k=steps_as_tokens(k),
            v=steps_as_tokens(v), beta=steps_as_tokens(beta))),
    "rwkv6": ("rwkv6", "rwkv6.chunk_rwkv6", rwkv6, {"scale": 1.0}, dict),
    "rwkv7": ("rwkv7", "rwkv7.chunk_rwkv7", rwkv7, {"scale": 1.0},
              lambda r, k, v, w, kappa, a: dict(
                  r=r, w=w, k=k, v=v, a=-kappa, b=kappa * a)),
}


class Op:
    def __init__(self, name):
        ours, theirs, self.make, self.options, self.rename = OPS[name]
        self.name, self.flin = name, flin.load(ours)
        module, self.function = theirs.split(".")
        self.module = "fla.ops." + module

    def theirs(self, x):
        f = getattr(importlib.import_module(self.module), self.function)
        x = self.rename(**x)
        return lambda: f(**x, **self.options)[0]

    def ours(self, x):
        return lambda: self.flin(**x, **self.options)[0]


def median(f, n=15):
    """Milliseconds of f() on the GPU."""
    events = [torch.cuda.Event(enable_timing=True) for _ in range(n + 1)]
    for _ in range(3):
        f()
    events[0].record()
    for e in events[1:]:
        f()
        e.record()
    torch.cuda.synchronize()
    return statistics.median(a.elapsed_time(b)
                             for a, b in zip(events, events[1:]))


def record(calls):
    """All of them as one graph; its outputs live as long."""
    for f in calls:
        f()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        graph.outputs = [f() for f in calls]
    return graph.replay


def timed(calls):
    """Milliseconds of one: eagerly, as a graph."""
    def each():
        for f in calls:
            f()
    def recorded():
        return median(record(calls)) / len(calls)
    return [median(each) / len(calls), attempt(recorded)]


def ratio(a, b):
    """None where either is a message."""
    return None if isinstance(a, str) or isinstance(b, str) else a / b


def both_ways(f, x, output):
    """Forward and backward."""
    leaves = [t.requires_grad_() for t in x.values()]
    dy = torch.randn_like(output)
    return lambda: torch.autograd.grad(f(), leaves, dy, allow_unused=True)


def attempt(f, *arguments):
    """Its result, or the first line of why there is none."""
    try:
        return f(*arguments)
    except Exception as e:
        torch.cuda.synchronize()
        return f"{type(e).__name__}: {e}".splitlines()[0][:70]


def copy_rate():
    """Bytes read and written in a millisecond by a large copy, on a GPU that
    does nothing else."""
    a = torch.empty(1 << 31, dtype=torch.uint8, device="cuda").random_()
    b = torch.empty_like(a)
    return 2 * a.numel() / median(lambda: b.copy_(a))


def show(**row):
    print("ROW " + json.dumps(row), flush=True)


def time_op(op, shape, rate, backward):
    x = op.make(*SHAPES[shape])
    size = sum(t.nbytes for t in x.values()) + normal(*SHAPES[shape]).nbytes
    sets = [x] + [op.make(*SHAPES[shape]) for _ in range(3 * CACHE // size)]
    calls = {"flin": [op.ours(x) for x in sets],
             "fla": [op.theirs(x) for x in sets]}
    row = {"op": op.name, "shape": shape, "floor_ms": size / rate}
    for who, fs in calls.items():
        with torch.no_grad():
            row[who] = attempt(timed, fs)
        if backward and isinstance(row[who], list):
            def train():
                return median(both_ways(fs[0], sets[0], fs[0]()))
            row[who + "_backward_ms"] = attempt(train)
    if isinstance(row["flin"], list):
        row["percent_of_floor"] = ratio(100 * row["floor_ms"], row["flin"][1])
    if isinstance(row["flin"], list) and isinstance(row["fla"], list):
        row["x_eager"], row["x_graph"] = map(ratio, row["fla"], row["flin"])
    show(**row)


def error_op(op):
    """Relative L2 distances from the float64 step, of what both compute."""
    torch.manual_seed(1)
    x = op.make(1, 300, 2, 128)
    want = op.flin.reference(**{n: t.cpu() for n, t in x.items()},
                             **op.options)[0]
    row = {"op": op.name}
    for who, make in (("flin", op.ours), ("fla", op.theirs)):
        o = attempt(lambda: make(x)())
        row[who] = o if isinstance(o, str) else float(
            (o.cpu().double() - want).norm() / want.norm())
    show(**row)


def host():
    """A prepared call of a small shape, without waiting for the GPU."""
    op = Op("simple_gla")
    x = op.make(1, 64, 1, 128)
    for name, grad in (("no_grad", False), ("autograd", True)):
        with torch.set_grad_enabled(grad):
            for t in x.values():
                t.requires_grad_(grad)
            f, laps = op.ours(x), []
            for _ in range(50):
                torch.cuda.synchronize()
                start = time.perf_counter()
                for _ in range(20):
                    f()
                laps.append((time.perf_counter() - start) / 20 * 1e6)
            show(host=name, us=statistics.median(laps), least=min(laps))


def main(mode="", ops="", shapes="", *more):
    ops = [Op(n) for n in (ops.split(",") if ops else OPS)]
    shapes = shapes.split(",") if shapes else list(SHAPES)
    if mode == "warm":
        for op, shape in itertools.product(ops, shapes):
            x = op.make(*SHAPES[shape])
            for who, make in (("flin", op.ours), ("fla", op.theirs)):
                start = time.perf_counter()
                with torch.no_grad():
                    o = attempt(lambda: make(x)())
                show(op=op.name, warm=who, error=isinstance(o, str) and o,
                     seconds=time.perf_counter() - start)
    elif mode == "time":
        rate = copy_rate()
        show(copy_TB_per_s=rate / 1e9)
        for op in ops:
            for shape in shapes:
                attempt(time_op, op, shape, rate, "--backward" in more)
    elif mode == "error":
        for op in ops:
            error_op(op)
    elif mode == "host":
        host()
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(*sys.argv[1:])
