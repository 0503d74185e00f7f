"""Variants with several results: a named tuple, gradients of each; what a step
probes, looked at."""
import importlib.util
import pickle
import sys

import numpy
from harness import check, close, end, flin, refused, same

if not importlib.util.find_spec("torch"):
    print("skip no PyTorch for", sys.executable)
    sys.exit()
import torch                                        # noqa: E402

torch.set_num_threads(1)
torch.manual_seed(5)

SOURCE = """
local flin = require "flin"
local dot, outer = flin.dot, flin.outer
return flin.variant {
  name = "two",
  input = { q = "t k", k = "t k : unit_norm", v = "t v", beta = "t : unit" },
  state = { S = "k v" },
  step = function (x, s)
    local e = x.v - dot(x.k, s.S)
    local S = s.S + outer(x.beta * x.k, e)
    return { S = S }, { y = dot(x.q, S), err = e, loss = dot(e, e) }
  end,
}
"""

v = flin.load(SOURCE)
check("names", [o.name for o in v.outputs] == ["y", "err", "loss"])
check("axes", v.outputs[1].axes == ("v",) and v.outputs[2].axes == ())


def tensors(dtype, grad=False):
    x = {n: torch.randn(2, 20, 2, d, dtype=torch.float64)
         for n, d in (("q", 8), ("k", 8), ("v", 6))}
    x["k"] /= x["k"].norm(dim=-1, keepdim=True)
    x["beta"] = torch.rand(2, 20, 2, dtype=torch.float64)
    return {n: t.to(dtype).requires_grad_(grad) for n, t in x.items()}


x = tensors(torch.float32, True)
r, state = v(**x, output_final_state=True)
truth, _ = v.reference(**{n: t.detach() for n, t in x.items()})
for name in r._fields:
    close(name, getattr(r, name), getattr(truth, name), 1e-5)
check("shapes", r.loss.shape == (2, 20, 2) and state.shape == (2, 2, 8, 6))
(r.loss.sum() + (r.y * 2).sum()).backward()
grads = v.backward(**{n: t.detach() for n, t in x.items()},
                   do={"y": torch.full_like(r.y, 2),
                       "loss": torch.ones_like(r.loss)})
for name, t in x.items():
    close("gradient of " + name, t.grad, grads[name], 1e-5)
    t.grad = None
v(**x)[0].err.square().sum().backward()
close("of one result", x["v"].grad, torch.autograd.grad(
    v(**x)[0].loss.sum(), x["v"])[0], 1e-5)
check("gradcheck", torch.autograd.gradcheck(
    lambda *a: tuple(v(**dict(zip("q k v".split(), a)), beta=a[3])[0]),
    [t[:1, :5, :1].clone().requires_grad_()
     for t in tensors(torch.float64).values()]))
first = {n: t[:, :1].detach() for n, t in x.items()}
one, _ = v.step(**first)
close("a step", one.err, r.err[:, :1], 1e-5)
n, _ = v(**{n: t.detach().numpy() for n, t in x.items()})
check("NumPy", isinstance(n.err, numpy.ndarray))
same("NumPy's numbers", torch.from_numpy(n.err), r.err.detach())

PROBED = SOURCE.replace("{ y = dot(x.q, S), err = e, loss = dot(e, e) }",
                        "dot(x.q, S)").replace(
    "return { S", 'flin.probe("err", e); flin.probe("loss", dot(e, e))\n'
    "    return { S")
p = flin.load(PROBED)
plain = {n: t.detach() for n, t in x.items()}
check("one result", [o.name for o in p.outputs] == ["y"])
same("y", p(**plain, scale=1)[0], v(**plain, scale=1)[0].y)
cu = torch.tensor([0, 5, 5, 20])
for how in ({}, {"scale": 0.5, "chunk": 4}, {"cu_seqlens": cu},
            {"initial_state": torch.randn(2, 2, 8, 6)}):
    args = {n: t[:1] if "cu_seqlens" in how else t for n, t in plain.items()}
    seen, wanted = p.probe(**args, **how), v(**args, **how)[0]
    for name in wanted._fields:
        close("probe " + name, getattr(seen, name), getattr(wanted, name),
              1e-5)
truth = p.probed.reference(**plain)[0]
close("in float64", p.probe(**plain).err, truth.err, 1e-5)
check("made once", p.probed is p.probed)
again = pickle.loads(pickle.dumps(p.probed))
same("pickled", again(**plain)[0].err, p.probe(**plain).err)
p.probe(**x).loss.sum().backward()
check("gradients of a probe", float(x["v"].grad.abs().max()) > 0)
refused("no probe", flin.Error, "its step has no probe", v.probe, **plain)
refused("no such result", flin.Error, "there is no result 'e'", v.backward,
        **first, do={"e": r.err})
refused("its shape", flin.Error, "do.err has shape", v.backward,
        **first, do={"err": r.err})
end()
