"""torch.compile and the operators it sees (PyTorch 2.4 on)."""

from harness import check, close, end, flin, refused, same, wants_custom_op

wants_custom_op()
import torch                                        # noqa: E402

torch.manual_seed(7)
gdn = flin.load("gated_deltanet")


def inputs(T=70, grad=True):
    x = [torch.randn(2, T, 2, 8), torch.randn(2, T, 2, 8) / 3,
         torch.randn(2, T, 2, 6), -torch.rand(2, T, 2), torch.rand(2, T, 2),
         torch.randn(2, 2, 8, 6)]
    return [t.requires_grad_(grad) for t in x]


def f(q, k, v, g, beta, s0):
    o, state = gdn(q, k, v, g=g, beta=beta, initial_state=s0,
                   output_final_state=True)
    return (o.square() + o).sum() + state.square().sum()


def gradients(f, x):
    x = [t.detach().clone().requires_grad_() for t in x]
    loss = f(*x)
    loss.backward()
    return [loss.detach()] + [t.grad for t in x]


# The first call of all is a compiled one; the graph is whole, and so is that
# of its gradients; other lengths work.
compiled = torch.compile(f, fullgraph=True, backend="aot_eager")
for T in (70, 71, 33):
    x = inputs(T)
    for i, (a, b) in enumerate(zip(gradients(compiled, x), gradients(f, x))):
        close(f"compiled, T {T}, {i}", a, b, 1e-6)
layer = flin.nn.LinearAttention(16, "gla", num_heads=2)
h = torch.randn(2, 20, 16)
close("a compiled layer", torch.compile(
    layer, fullgraph=True, backend="aot_eager")(h)[0], layer(h)[0], 1e-6)

plain = flin.load("""
local flin = require "flin"
return flin.variant { name = "plain", mode = "quadratic",
  mask = function (i, j) return i < j and 0 or 1 / (1 + i - j) end }
""")
q, k, v = inputs()[:3]
for a, b in zip(*(torch.autograd.grad(
        f(q, k, v, scale=1)[0].sum(), (q, k, v)) for f in (
        torch.compile(plain, fullgraph=True, backend="aot_eager"), plain))):
    close("a compiled variant without states", a, b, 1e-6)

# Decoding, a trace; what cannot see the call says so.
q, k, v, g, beta, s0 = inputs(1, False)


def step(state, inplace):
    return gdn.step(q, k, v, g=g, beta=beta, state=state, inplace=inplace)


want, state = step(s0, False)
for inplace in (False, True):
    s = s0.clone()
    o, new = torch.compile(step, fullgraph=True, backend="aot_eager")(
        s, inplace)
    close("a compiled step", o, want, 1e-6)
    close("its state", new, state, 1e-6)
    same("in place, or not", s, new if inplace else s0)
trace = torch.jit.trace(lambda q: gdn(q, k, v, g=g, beta=beta)[0], q)
same("a trace", trace(q * 2), gdn(q * 2, k, v, g=g, beta=beta)[0])
refused("torch.func", ValueError, "torch.autograd.grad", torch.func.grad(
    lambda q: gdn(q, k, v, g=g, beta=beta)[0].sum()), q)

def dual(q):
    with torch.autograd.forward_ad.dual_level():
        gdn(torch.autograd.forward_ad.make_dual(q, q), k, v, g=g, beta=beta)


refused("a dual number", ValueError, "forward-mode derivatives", dual, q)
meta = [t.to("meta") for t in (q, k, v, g, beta)]
o, state = gdn(*meta[:3], g=meta[3], beta=meta[4], output_final_state=True)
check("tensors without data", o.is_meta and o.shape == v.shape
      and state.is_meta and state.shape == s0.shape)

# States whose axes no input has.
taylor = flin.load("""
local flin = require "flin"
return flin.attention { features = flin.feature_map.taylor() }
""")
q, k, v = inputs(grad=False)[:3]


def second_order(q, k, v):
    o, state = taylor(q, k, v, output_final_state=True)
    return o + 1, *state.values()


for a, b in zip(torch.compile(second_order, fullgraph=True,
                              backend="aot_eager")(q, k, v),
                second_order(q, k, v)):
    same("a state of renamed axes", a, b)

# PyTorch's own checks: schema, fakes, autograd, dynamic shapes.
x, options = inputs(), (1, None, 0, None, False)
operators = torch.ops.flin
for name, op, arguments in (
        ("forward", operators.forward, (gdn.key, x[:5], x[5:], *options,
                                        True)),
        ("no state", operators.forward, (gdn.key, x[:5], [], 0, None,
                                         32, None, True, False)),
        ("packed", operators.forward, (
            gdn.key, [t.detach()[:1] for t in x[:5]], [], 0,
            torch.tensor([0, 30, 70]), 0, 1.0, False, True)),
        ("backward", operators.backward, (
            gdn.key, [t.detach() for t in x[:5]], [x[5].detach()], *options,
            [torch.randn(2, 70, 2, 6)], [None]))):
    try:
        found = torch.library.opcheck(op.default, arguments)
        check(f"opcheck {name}", set(found.values()) == {"SUCCESS"}, found)
    except Exception as e:
        check(f"opcheck {name}", False, e)
o, state = operators.forward(gdn.key, x[:5], x[5:], *options, True)
same("the operator", o, gdn(*x[:3], g=x[4], beta=x[3],
                            initial_state=x[5])[0])
a, = torch.autograd.grad(o.square().sum(), x[2], create_graph=True)
refused("twice", ValueError, "gated_deltanet: gradients of gradients",
        a.sum().backward)
end()
