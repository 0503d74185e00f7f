"""Losses of the states alone, of the results alone and of both, for each
variant: gradients by PyTorch beside the float64 step's. On a GPU, if there is
one.
    python3 torch_losses.py [VARIANT ...]"""
import importlib.util
import sys

import harness
from harness import check, end, flin, shapes

if not importlib.util.find_spec("torch"):
    print("skip no PyTorch for", sys.executable)
    sys.exit()
import torch                                        # noqa: E402

torch.set_num_threads(1)
torch.manual_seed(11)
ON = "cuda" if torch.cuda.is_available() else "cpu"
SIZES = {"k": 32, "v": 16, "p": 16, "m": 32} if ON == "cuda" else {}
harness.SIZES.update(SIZES)
HALF = torch.bfloat16 if ON == "cuda" else torch.float32
# Of float32, and of what sums over a row or over all tokens and cancels.
LIMIT, SUMS = (1.5e-2, 1e-1) if ON == "cuda" else (2e-5, 2e-4)
# What has decayed over all tokens is no better than the others' rounding.
SMALL = 1e-2


def draw(shape, domain):
    t = torch.randn(shape, dtype=torch.float64)
    if domain == "log_decay":
        return -t.abs()
    if domain == "unit":
        return torch.rand(shape, dtype=torch.float64)
    if domain == "positive":
        return t.abs() / 2
    if domain == "unit_norm":
        return torch.nn.functional.normalize(t, dim=-1)
    return t / 2


# By name: whether it is of y, of the states.
LOSSES = {"states": (False, True), "y": (True, False), "both": (True, True)}


def judge(name, v, x, s0, weights, of_y, of_states):
    """Gradients of a loss; the same of float64, which the step computes."""
    found = []
    for exact in False, True:
        leaves = {n: (t.double().cpu() if exact else t).detach()
                  .requires_grad_() for n, t in x.items()}
        start = {n: (t.double().cpu() if exact else t).detach()
                 .requires_grad_() for n, t in s0.items()}
        one = start if len(start) > 1 else next(iter(start.values()))
        y, s = v(**leaves, initial_state=one, output_final_state=True)
        left = s if isinstance(s, dict) else {next(iter(start)): s}
        w = [t.double().cpu() if exact else t for t in weights]
        terms = [(y.to(w[0].dtype) * w[0]).sum()] * of_y
        terms += [(t * u).sum() for t, u in zip(left.values(), w[1:])
                  if of_states]
        sum(terms).backward()
        found.append({**leaves, **{"initial " + n: t
                                   for n, t in start.items()}})
    largest = max(t.grad.norm() for t in found[1].values()
                  if t.grad is not None)
    for n, t in found[0].items():
        want = found[1][n].grad
        got = t.grad
        if want is None or got is None:
            check(f"{name}: d {n}", got is None or not got.any(),
                  "a gradient of what nothing depends on")
            continue
        matrix = n.startswith("initial") or t.dtype == HALF
        error = (got.cpu().double() - want).norm() \
            / max(want.norm(), SMALL * largest)
        check(f"{name}: d {n}", error <= (LIMIT if matrix else SUMS),
              f"off by {error:.1e}")


for name in sys.argv[1:] or flin.stdlib:
    v = flin.load(name)
    x = {}
    for n, (shape, domain) in shapes(v, B=2, T=70, H=2).items():
        wide = len(shape) > 3 and domain not in ("log_decay", "unit")
        x[n] = draw(shape, domain).to(ON, HALF if wide else torch.float32)
    few = {n: t[:, :9] if v.inputs[i].timed else t
           for i, (n, t) in enumerate(x.items())}
    y, s0 = v(**few, output_final_state=True)
    s0 = s0 if isinstance(s0, dict) else {v.states[0].name: s0}
    y = v(**x)[0]
    weights = [torch.randn(t.shape).to(ON) for t in (y, *s0.values())]
    for what, of in LOSSES.items():
        judge(f"{name}, {what}", v, x, s0, weights, *of)
    if ON == "cuda":                    # kernels take long to compile
        print(name, flush=True)
end()
