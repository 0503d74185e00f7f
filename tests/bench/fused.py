"""A projection, a gated scan and a SiLU gate as flin plans them: apart, the
scan with all that is a token's own, all in one kernel; beside PyTorch's three
steps, eager and by torch.compile. Milliseconds of the way forward, and of both
ways, in CUDA graphs of ten calls; bytes as planned; how far each is from
float64.

    python3 tests/bench/fused.py [B=1,4,16 T=512,2048,4096 d=256 v=64
                                  both=1 state=scan warm=0 only=NAMES]
    python3 tests/bench/fused.py traffic=1 [the same]
    python3 tests/bench/fused.py layer=gla,gated_deltanet,mamba2 [B T d k v]
    python3 tests/bench/fused.py rule=gla,simple_gla,gated_deltanet [B T k v]

state=scan: a number for each of v, s = exp(g) s + k v; state=matrix: one of k
by v with r for queries (simple_gla of one head, k=64). PyTorch also goes by
chunks. Each row is one line: separate, fused, whole, chosen, eager, compiled,
or those of these names. The first calls compile, and with warm=1 these are all.
traffic: bytes that go through the GPU's memory, as ncu counts them, where each
kernel begins with empty caches; it wants the GPU's counters (root).
layer: whole layers of one head, in the same plans, with traffic=1, too. rule: a
rule of one head, a gate of its result, and a residual, likewise."""
import functools
import sys

import torch
import torch.nn.functional as F

import traffic
from timing import recorded

import tree                                         # noqa: F401
import flin.nn

CHOSEN = "chosen"
PLANS = {"separate": "separate", "fused": "fused", "whole": "whole",
         CHOSEN: None}
SCAN = """
local flin = require "flin"
local scan = flin.variant {
  name  = "gated_scan",
  input = { v = "t v", k = "t", g = "t : log_decay" },
  state = { s = "v" },
  step  = function (x, s)
    local new = flin.exp(x.g) * s.s + x.k * x.v
    return { s = new }, new
  end,
}
return flin.layer {
  name = "projected_scan",
  input = { x = "t d", k = "t", g = "t", gate = "t v" },
  weight = { W = "d v" },
  forward = function (x, w)
    local y = scan { v = flin.dot(x.x, w.W), k = x.k,
                     g = flin.logsigmoid(x.g) }
    return y * flin.silu(x.gate)
  end
}
"""
MATRIX = """
local flin = require "flin"
return flin.layer {
  name = "projected_attention",
  input = { x = "t d", r = "t k", k = "t k", g = "t", gate = "t v" },
  weight = { W = "d v" },
  forward = function (x, w)
    local y = flin.stdlib.simple_gla {
      q = x.r, k = x.k, v = flin.dot(x.x, w.W), g = flin.logsigmoid(x.g) }
    return y * flin.silu(x.gate)
  end
}
"""
RULE = """
local flin = require "flin"
return flin.layer {
  name = "gated_NAME",
  input = { INPUTS, gate = "t v", x = "t v" },
  forward = function (x)
    local y = flin.stdlib.NAME { ARGUMENTS }
    return y * flin.silu(x.gate) + x.x
  end
}
"""
CHUNK = 64
CALLS = 10


def decays(g, strict):
    """exp(g_i - h_j) where i > j, or i >= j, of cumulated gates; strict: h is
    g, and g that of the one before."""
    before = F.pad(g, (1, 0))[..., :-1] if strict else g
    n = g.shape[-1]
    seen = torch.ones(n, n, dtype=torch.bool, device=g.device)
    return (before[..., :, None] - g[..., None, :]).masked_fill(
        ~seen.tril(-1 if strict else 0), -1e30).exp()


def eager(x, W, k, g, gate, r=None):
    """The three, by chunks: within one, and from all to all."""
    exact = x.dtype == torch.float64
    v, g = x @ W, F.logsigmoid(g if exact else g.float())
    B, T, V = v.shape
    n = T // CHUNK
    g = g.view(B, n, CHUNK).cumsum(2)
    v = v.view(B, n, CHUNK, V)
    left, inner = (g[..., -1:] - g).exp(), decays(g, False)
    if r is None:
        v = v * k.view(B, n, CHUNK, 1)
        y = inner.to(v.dtype) @ v
        new = (left[..., None] * v).sum(2)
    else:
        r, k = (t.view(B, n, CHUNK, -1) for t in (r, k))
        y = (inner * (r @ k.mT)).to(v.dtype) @ v
        new = ((left[..., None] * k).to(v.dtype).mT @ v).to(g.dtype)
    s = decays(g[..., -1].cumsum(1), True) @ new.flatten(2)
    s = s.view(new.shape).to(v.dtype)
    old = s[:, :, None] if r is None else r @ s
    y = y + g.exp()[..., None].to(v.dtype) * old
    return y.reshape(B, T, V) * F.silu(gate)


def both_ways(f, tensors, dy):
    def run():
        return torch.autograd.grad(f(), tensors, dy)
    return run


def apart(a, b):
    return float((a.double() - b).norm() / b.norm())


class Case:
    """Functions to be timed, by names, of one size; what each has gradients
    of; what is right, where it is known; how the names' plans read."""

    def __init__(self, what, calls, leaves, dy, planned, exact=None):
        self.what, self.calls, self.leaves = what, calls, leaves
        self.dy, self.planned, self.exact = dy, planned, exact

    def ways(self, name, both):
        f = self.calls[name]

        def forward():
            with torch.no_grad():
                return f()
        yield "forward", forward
        if both:
            yield "both ways", both_ways(f, self.leaves[name], self.dy)

    def time(self, name, both):
        """A row; of a refusal its first line."""
        row = f"{self.what} {name:10}:"
        try:
            for way, f in self.ways(name, both):
                row += f" {way} {recorded(f, CALLS):.4f} ms,"
            if self.exact is not None:
                with torch.no_grad():
                    y = self.calls[name]()
                row += f" {apart(y, self.exact):.1e} off,"
            row = row.rstrip(",") + self.planned(name)
        except (flin.Error, RuntimeError) as e:
            row += " refused: " + str(e).splitlines()[0]
        print(row, flush=True)

    def runs(self, name, f):
        """Twice; or it says why not."""
        try:
            f()
            f()
            torch.cuda.synchronize()
        except (flin.Error, RuntimeError) as e:
            print(f"{self.what} {name}: {str(e).splitlines()[0]}", flush=True)
            return False
        return True

    def show_to_profiler(self, name, both):
        """The third call of each way, behind a mark."""
        cuda = torch.cuda.cudart()
        for _, f in self.ways(name, both):
            runs = self.runs(name, f)
            cuda.cudaProfilerStart()
            torch.cuda._sleep(100)
            if runs:
                f()
            torch.cuda.synchronize()
            cuda.cudaProfilerStop()


def as_planned(layer, b, t, both, **sizes):
    """Of a plan's name: how many parts it has, and what it predicts, forward
    and both ways."""
    def text(name):
        if name not in PLANS:
            return ""
        words = ""
        for back in (False, True) if both else (False,):
            found = layer.plan(B=b, T=t, machine="h200", backward=back,
                               **sizes, **({"plan": name} if PLANS[name]
                                           else {}))
            words += (f"; {len(found['parts'])} parts, "
                      f"{found['bytes'] / 1e6:.2f} MB, predicted "
                      f"{found['predicted'] * 1e3:.4f}")
        return words
    return text


def projected(o, b, t):
    """The projection, the scan and the gate."""
    d, v, k = (int(o[n]) for n in "dvk")
    matrix = o["state"] == "matrix"
    layers = {name: flin.load(MATRIX if matrix else SCAN, plan=plan)
              for name, plan in PLANS.items()}

    def draw(*shape, by=1.):
        return (by * torch.randn(*shape, device="cuda")).to(
            torch.bfloat16).requires_grad_()
    torch.manual_seed(1)
    x = {"x": draw(b, t, d), "W": draw(d, v, by=d ** -0.5), "g": draw(b, t),
         "gate": draw(b, t, v), "k": draw(b, t, k, by=k ** -0.5) if matrix
         else draw(b, t)}
    if matrix:
        x["r"] = draw(b, t, k)
    calls = {name: functools.partial(lambda layer: layer(**x)[0], layer)
             for name, layer in layers.items()}
    calls["eager"] = lambda: eager(**x)
    torch._dynamo.reset()               # of each shape its own
    compiled = torch.compile(eager, dynamic=False)
    calls["compiled"] = lambda: compiled(**x)
    exact = eager(**{n: a.detach().double() for n, a in x.items()})
    return Case(f"B {b:2} T {t:4}", calls,
                dict.fromkeys(calls, list(x.values())),
                draw(b, t, v).detach(),
                as_planned(layers[CHOSEN], b, t, int(o["both"]), d=d, v=v,
                           **({"k": k} if matrix else {})), exact)


def whole(o, b, t, name):
    """A layer of the library, of one head, in training."""
    d, v, k = (int(o[n]) for n in "dvk")
    given = {"k": k, "v": v, **dict.fromkeys("rsefg", k)}
    torch.manual_seed(1)
    x = torch.randn(b, t, d, device="cuda", dtype=torch.bfloat16,
                    requires_grad=True)
    axes = flin.load(f"return require('flin').layers.{name}").sizes
    layers = {n: flin.nn.Layer(
        name, d=d, heads=1, device="cuda", dtype=torch.bfloat16, plan=plan,
        **{a: given[a] for a in axes if a in given}).lay_beside()
        for n, plan in PLANS.items()}
    calls = {n: functools.partial(lambda m: m(x)[0], m)
             for n, m in layers.items()}
    chosen = layers[CHOSEN]
    return Case(f"{name} B {b:2} T {t:4}", calls,
                {n: [x, *m.parameters()] for n, m in layers.items()},
                torch.randn_like(x),
                as_planned(chosen.layer, b, t, int(o["both"]), **chosen.sizes))


def rule(o, b, t, name):
    """A variant's kernels with a gate behind them, and a residual."""
    axes = {"k": int(o["k"]), "v": int(o["v"])}
    has = [a for a in flin.load(name).inputs if a.timed]
    text = RULE.replace("NAME", name).replace("INPUTS", ", ".join(
        f'{a.name} = "t {" ".join(a.axes)}"' for a in has)).replace(
        "ARGUMENTS", ", ".join(f"{a.name} = x.{a.name}" for a in has))
    torch.manual_seed(1)
    x = {}
    for n, domain, own in [*((a.name, a.domain, a.axes) for a in has),
                           ("gate", "normal", "v"), ("x", "normal", "v")]:
        drawn = torch.randn(b, t, *(axes[axis] for axis in own),
                            device="cuda")
        x[n] = flin.nn.ACTIVATIONS[domain](drawn).to(
            torch.bfloat16).requires_grad_()
    layers = {n: flin.load(text, plan=plan) for n, plan in PLANS.items()
              if n != "whole"}
    calls = {n: functools.partial(lambda layer: layer(**x)[0], layer)
             for n, layer in layers.items()}
    return Case(f"rule {name} B {b:2} T {t:4}", calls,
                dict.fromkeys(calls, list(x.values())),
                torch.randn_like(x["x"]),
                as_planned(layers[CHOSEN], b, t, int(o["both"]), **axes))


def cases(o):
    for b in map(int, str(o["B"]).split(",")):
        for t in map(int, str(o["T"]).split(",")):
            if o["layer"] or o["rule"]:
                made = whole if o["layer"] else rule
                for name in (o["layer"] or o["rule"]).split(","):
                    yield made(o, b, t, name)
            else:
                yield projected(o, b, t)


def names_of(case, o):
    return [n for n in case.calls if not o["only"] or n in o["only"].split(",")]


def count(o):
    """Bytes of each, as this program shows them to the profiler."""
    kernels, groups = traffic.metered(__file__, *(
        f"{n}={v}" for n, v in {**o, "traffic": 0, "shown": 1}.items())), []
    for name, found in kernels:
        if "spin_kernel" in name:
            groups.append([])
        else:
            groups[-1].append((name, found))
    groups = iter(groups)
    for case in cases(o):
        for name in names_of(case, o):
            for way, _ in case.ways(name, int(o["both"])):
                own = next(groups)
                if own:
                    moved, spent, n = traffic.summed(own)
                    print(f"{case.what} {name}, {way}: {moved / 1e6:.3f} MB, "
                          f"{n} kernels of {spent / 1e3:.1f} us in all",
                          flush=True)


def main(o):
    both = int(o["both"])
    if int(o["traffic"]):
        count(o)
        return
    for case in cases(o):
        for name in names_of(case, o):
            if int(o["shown"]):
                case.show_to_profiler(name, both)
            elif int(o["warm"]):
                for _, f in case.ways(name, both):
                    case.runs(name, f)
            else:
                case.time(name, both)


if __name__ == "__main__":
    given = dict(a.split("=") for a in sys.argv[1:])
    small = {"B": 1, "T": 256, "d": 64, "v": 64, "k": 16}
    sweep = {"B": "1,4,16", "T": "512,2048,4096", "d": 256, "v": 64, "k": 64}
    main({**(small if {"layer", "rule"} & set(given) else sweep), "both": 1,
          "state": "scan", "warm": 0, "traffic": 0, "shown": 0, "only": "",
          "layer": "", "rule": "", **given})
