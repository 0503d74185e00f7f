"""Programs over rows through PyTorch: cross-entropy, labels, in place."""
import importlib.util
import sys
from statistics import median

from harness import check, close, end, flin, refused, same

if not importlib.util.find_spec("torch"):
    print("skip no PyTorch for", sys.executable)
    sys.exit()
import torch                                        # noqa: E402
import torch.nn.functional as F                     # noqa: E402
import flin.nn                                      # noqa: E402

torch.set_num_threads(1)
torch.manual_seed(3)

for n in 2, 7, 33, 32000:
    z = (2 * torch.randn(2, 5, n)).requires_grad_()
    label = torch.randint(n, (2, 5))
    label[0, 1] = -100
    flin.nn.CrossEntropy()(z, label).backward()
    mine, z.grad = z.grad, None
    F.cross_entropy(z.view(-1, n), label.view(-1)).backward()
    close(f"gradient of {n}", mine, z.grad, 1e-5)
    for reduction in "mean", "sum", "none":
        y = flin.nn.CrossEntropy(reduction=reduction)(z, label)
        true = F.cross_entropy(z.view(-1, n), label.view(-1),
                               reduction=reduction)
        close(f"{reduction} of {n}", y.reshape(true.shape), true,
              1e-6)
    over = (z.detach() * 1).requires_grad_()
    logits = over * 1
    flin.nn.CrossEntropy(inplace=True)(logits, label).backward()
    same(f"in place, {n}", over.grad, mine)
    same(f"in place, {n}: over the logits", logits.detach(), mine)

x = torch.randn(2, 9, 12, requires_grad=True)
w = torch.randn(12, 5000, requires_grad=True)
label = torch.randint(5000, (2, 9))
label[1, 2] = -100
flin.nn.LinearCrossEntropy()(x, w, label).backward()
mine = x.grad, w.grad
x.grad = w.grad = None
loss = F.cross_entropy((x @ w).view(-1, 5000), label.view(-1))
close("the head, too", flin.nn.LinearCrossEntropy()(x, w, label), loss, 1e-6)
loss.backward()
close("the head, too: hidden states", mine[0], x.grad, 1e-5)
close("the head, too: weight", mine[1], w.grad, 1e-5)
for most in 18 * 1024 * 4, 5000 * 4:    # columns of all tokens, a token's
    y = [t.detach().requires_grad_() for t in (x, w)]
    found = flin.nn.LinearCrossEntropy(memory=most)(*y, label)
    close(f"in {most} bytes", found, loss, 1e-6)
    found.backward()
    close(f"in {most} bytes: hidden states", y[0].grad, x.grad, 1e-5)
    close(f"in {most} bytes: weight", y[1].grad, w.grad, 1e-5)
refused("a limit below a token's", flin.Error, "memory = 1000",
        lambda: flin.nn.LinearCrossEntropy(memory=1000)(x, w, label))


def allocated(f):
    """Bytes of tensors that are made."""
    with torch.autograd.profiler.profile(profile_memory=True) as p:
        f()
    return sum(max(e.self_cpu_memory_usage, 0) for e in p.function_events)


# One product's halves, as models have them: gradients over them, or beside.
h = torch.randn(2, 30, 12)
w = torch.randn(12, 2 * 700, requires_grad=True)
found, made = {}, {False: [], True: []}
for inplace in [False, True] * 9:       # PyTorch's threads count now and then
    w.grad, both = None, h @ w          # what another one makes
    gate, up = both.chunk(2, -1)
    dy = torch.cos(gate.detach())
    y = flin.nn.SwiGLU(inplace)(gate, up)
    made[inplace].append(allocated(lambda: y.backward(dy)))
    found[inplace] = w.grad, both.detach()
a, b = (t.detach().requires_grad_() for t in (h @ w).chunk(2, -1))
true = F.silu(a) * b
close("SwiGLU", flin.nn.SwiGLU()(a, b), true, 1e-6)
true.backward(torch.cos(a.detach()))
mine = flin.nn.SwiGLU()(c := a.detach().requires_grad_(),
                        d := b.detach().requires_grad_())
mine.backward(torch.cos(a.detach()))
close("SwiGLU: d_gate", c.grad, a.grad, 1e-6)
close("SwiGLU: d_up", d.grad, b.grad, 1e-6)
same("SwiGLU in place: the weight's gradient", found[True][0],
     found[False][0])
same("SwiGLU in place: d_gate and d_up lie where these did", found[True][1],
     torch.cat([c.grad, d.grad], -1))
check("SwiGLU in place: two tensors are not made",
      median(made[False]) - median(made[True]) >= 2 * gate.numel() * 4, made)
u = torch.randn(3, 40, requires_grad=True)
gate = u * 1
late = gate.square()        # reads gate on its way back
y = flin.nn.SwiGLU(True)(gate, u * 2)
refused("SwiGLU in place, with a later reader", RuntimeError,
        "modified by an inplace operation",
        lambda: (late.sum() + y.sum()).backward()
        if y.sum().backward(retain_graph=True) is None else None)
refused("SwiGLU in place, of one tensor", ValueError,
        "dinput.gate and dinput.up overlap",
        lambda: flin.nn.SwiGLU(True)(gate := u * 1, gate).sum().backward())

# Some gradients alone, over their inputs or beside them. By ones for each
# token, the gradient of a factor is what it is multiplied by.
gated = flin.load("""local flin = require "flin"
return flin.layer {
  name = "gated", input = { gate = "t e", up = "t e", dh = "t e" },
  forward = function (x)
    return flin.sum(flin.silu(x.gate) * x.up * x.dh, "e")
  end }""")
x = {"gate": a.detach(), "up": b.detach(), "dh": torch.cos(a.detach())}
ones = torch.ones(a.shape[:-1])
every = gated.backward(**x, do=ones)
same("gated: the way back makes the product", every["dh"],
     flin.nn.SwiGLU()(a, b).detach())
same("gated: d_gate", every["gate"], c.grad)
some = gated.backward(**x, do=ones, wanted=("up", "dh"))
check("gated: those that are wanted", set(some) == {"up", "dh"}, list(some))
copies = {n: t.clone() for n, t in x.items()}
over = gated.backward(**copies, do=ones, wanted=("dh", "up"),
                      inplace=("dh", "gate"))
for n in some:
    same(f"gated: {n} alone", some[n], every[n])
    same(f"gated: {n}, in place", over[n], every[n])
check("gated: over dh alone", over["dh"].data_ptr()
      == copies["dh"].data_ptr() and torch.equal(copies["up"], x["up"])
      and torch.equal(copies["gate"], x["gate"]))
refused("gated: no such gradient", ValueError, "no argument 'down'",
        lambda: gated.backward(**x, do=ones, wanted=("down",)))
refused("gated: no such place", ValueError, "no input 'down'",
        lambda: gated.backward(**x, do=ones, inplace=("down",)))
refused("SwiGLU of two shapes", ValueError, "but up [3, 4]", flin.nn.SwiGLU(),
        u, u[:, :4])

norm = flin.nn.RMSNorm(300)
x = torch.randn(2, 7, 300, requires_grad=True)
with torch.no_grad():
    norm.weight.normal_()
y = norm(x)
y.square().sum().backward()
mine, x.grad, norm.weight.grad = (x.grad, norm.weight.grad), None, None
true = x * torch.rsqrt(x.square().mean(-1, True) + norm.eps) * norm.weight
close("RMSNorm", y, true, 1e-6)
true.square().sum().backward()
close("RMSNorm: d_x", mine[0], x.grad, 1e-5)
close("RMSNorm: d_weight", mine[1], norm.weight.grad, 1e-5)


def turned(x, angle):
    """Each pair of neighbours as a complex number."""
    z = torch.view_as_complex(x.unflatten(-1, (-1, 2)))
    return torch.view_as_real(z * torch.polar(torch.ones_like(angle),
                                              angle).unsqueeze(-2)).flatten(-2)


rope = flin.nn.RoPE()
places = torch.randint(0, 1 << 20, (2, 9))
for heads, positions in (16, None), (4, None), (16, places), (3, places[0]):
    x = torch.randn(2, 9, heads, 12, requires_grad=True)
    at = torch.arange(5, 14) if positions is None else positions
    angle = at.double()[..., None] * 10000. ** (
        -torch.arange(0, 12, 2).double() / 12)
    y = rope(x, 5, positions)
    dy = torch.cos(x.detach())
    y.backward(dy)
    mine, x.grad = x.grad, None
    true = turned(x.double(), angle)
    close(f"RoPE of {heads} heads", y, true.float(), 1e-6)
    true.backward(dy.double())
    close(f"RoPE of {heads} heads: d_x", mine, x.grad, 1e-6)
    same(f"RoPE of {heads} heads, each alone", y.detach(), torch.cat(
        [rope(t, 5, positions) for t in x.detach().split(1, 2)], 2))
kept = []
with torch.autograd.graph.saved_tensors_hooks(
        lambda t: kept.append(t.numel()) or t, lambda t: t):
    rope(x, 5)
check("RoPE keeps angles alone", kept == [x.shape[0] * x.shape[1]
                                          * x.shape[3] // 2], kept)
angle = torch.randn(1, 9, 4, requires_grad=True)
flin.nn.rotate(x.detach()[:, :9], angle.expand(x.shape[0], 9, 4)).sum() \
    .backward()
check("angles have gradients", angle.grad.abs().max() > 0, angle.grad)
y = rope(torch.randn(1, 5, 4, 8).bfloat16())
check("RoPE of bfloat16", y.dtype == torch.bfloat16, y.dtype)
same("RoPE: the same places again", rope(x, 2), rope(x, 0, torch.arange(2, 11)))
refused("RoPE of an odd head", ValueError, "of an even D", rope,
        torch.randn(1, 2, 3, 5))

z = torch.randn(3, 40, requires_grad=True)
label = torch.tensor([0, 39, 5])
y = flin.nn.CrossEntropy(reduction="none")(z.bfloat16(), label)
check("a loss is float32", y.dtype == torch.float32, y.dtype)
close("bfloat16", y, F.cross_entropy(z.bfloat16().float(), label,
                                     reduction="none"), 1e-6)
same("int32", flin.nn.CrossEntropy()(z, label.int()),
     flin.nn.CrossEntropy()(z, label))
logits = z * 1
late = logits.square()      # which reads the logits on its way back
loss = flin.nn.CrossEntropy(inplace=True)(logits, label)
refused("a later reader of what is written over", RuntimeError,
        "modified by an inplace operation",
        lambda: (late.sum() + loss).backward()
        if loss.backward(retain_graph=True) is None else None)
refused("no such label", ValueError, "label is 40 at token 1",
        flin.nn.CrossEntropy(), z, torch.tensor([0, 40, 5]))
refused("labels that are no numbers of entries", ValueError,
        "is declared an index of axis 'n'", flin.nn.CrossEntropy(), z,
        label.float())
gdn = flin.load("gated_deltanet")
refused("in place, of a variant", ValueError, "there is no input 'q' of a "
        "layer", gdn, *torch.randn(3, 1, 4, 2, 8), inplace=("q",),
        g=torch.zeros(1, 4, 2), beta=torch.zeros(1, 4, 2))
refused("whole numbers for keys", ValueError, "k is int64", gdn,
        torch.randn(1, 4, 2, 8), torch.ones(1, 4, 2, 8).long(),
        torch.randn(1, 4, 2, 8), g=torch.zeros(1, 4, 2),
        beta=torch.zeros(1, 4, 2))
end()
