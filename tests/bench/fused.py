"""A projection, a gated scan and a SiLU gate as flin plans them: apart, the
scan with all that is a token's own, all in one kernel; beside PyTorch's three
steps, eager and by torch.compile. Milliseconds of the way forward, and of both
ways, as CUDA graphs; bytes as planned; how far each is from float64.

    python3 tests/bench/fused.py [B=1,4,16 T=512,2048,4096 d=256 v=64
                                  both=1 state=scan compiled=1]

state=scan: a number for each of v, s = exp(g) s + k v; state=matrix: one of k
by v with r for queries (simple_gla of one head, k=64). PyTorch also goes by
chunks. Each row is one line; the first calls compile."""
import sys

import torch
import torch.nn.functional as F

from timing import recorded

import flin

PLANS = "separate", "fused", "whole", None
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
CHUNK = 64


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


def number(ms):
    return f"{ms:8.4f}" if isinstance(ms, float) else f"{ms:>8}"


def measured(f, tensors, dy, both):
    """Forward and, where asked for, both ways; a refusal's first line instead.
    """
    try:
        with torch.no_grad():
            forward = recorded(f)
        y = f().detach()
        return forward, recorded(both_ways(f, tensors, dy)) if both else "", y
    except (flin.Error, RuntimeError) as e:
        return "refused", str(e).splitlines()[0], None


def main(B="1,4,16", T="512,2048,4096", d=256, v=64, k=64, both=1,
         state="scan", compiled=1):
    d, v, k = int(d), int(v), int(k)
    text = SCAN if state == "scan" else MATRIX
    layers = {plan: flin.load(text, plan=plan) for plan in PLANS}
    sizes = {"d": d, "v": v, **({"k": k} if state == "matrix" else {})}
    theirs = {"eager": eager}
    torch.manual_seed(1)
    for b in map(int, str(B).split(",")):
        for t in map(int, str(T).split(",")):
            def draw(*shape, by=1.):
                return (by * torch.randn(*shape, device="cuda")).to(
                    torch.bfloat16).requires_grad_()
            x = {"x": draw(b, t, d), "W": draw(d, v, by=d ** -0.5),
                 "g": draw(b, t), "gate": draw(b, t, v)}
            x["k"] = draw(b, t) if state == "scan" else draw(
                b, t, k, by=k ** -0.5)
            if state == "matrix":
                x["r"] = draw(b, t, k)
            tensors, dy = list(x.values()), torch.randn(
                b, t, v, device="cuda").to(torch.bfloat16)
            exact = eager(**{n: a.detach().double() for n, a in x.items()})
            for plan, layer in layers.items():
                name = plan or "as planned"
                try:
                    planned = layer.plan(B=b, T=t, machine="h200", **sizes, **(
                        {"plan": plan} if plan else {}))
                except flin.Error as e:
                    print(f"B {b} T {t} {name}: {str(e).splitlines()[0]}")
                    continue
                ms = measured(lambda: layer(**x)[0], tensors, dy, int(both))
                report(b, t, name, ms, exact, f"; {len(planned['parts'])} "
                       f"parts, {planned['bytes'] / 1e6:.2f} MB, predicted "
                       f"{planned['predicted'] * 1e3:.4f}")
            if int(compiled):           # of each shape its own
                torch._dynamo.reset()
                theirs["compiled"] = torch.compile(eager, dynamic=False)
            for name, f in theirs.items():
                report(b, t, name, measured(lambda: f(**x), tensors, dy,
                                            int(both)), exact, "")


def report(b, t, name, ms, exact, more):
    forward, both, y = ms
    off = f", {apart(y, exact):.1e} off" if y is not None else ""
    print(f"B {b:2} T {t:4} {name:10}: {number(forward)} ms, both ways "
          f"{number(both)}{off}{more}", flush=True)


if __name__ == "__main__":
    main(**dict(a.split("=") for a in sys.argv[1:]))
