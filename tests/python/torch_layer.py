"""A layer through Python: calls, gradients, decoding, torch.compile."""
import importlib.util
import sys

from harness import check, close, end, flin, refused, same

if not importlib.util.find_spec("torch"):
    print("skip no PyTorch for", sys.executable)
    sys.exit()
import torch                                        # noqa: E402

torch.set_num_threads(1)
torch.manual_seed(7)

layer = flin.load("return require'flin'.layers.gated_deltanet")
SIZES = {"d": 6, "h": 2, "k": 4, "v": 3, "w": 4}


def weights(dtype=torch.float32):
    return {a.name: (0.5 * torch.randn([SIZES[n] for n in a.axes]))
            .to(dtype).requires_grad_()
            for a in layer.inputs if not a.timed}


w = weights()
x = torch.randn(2, 20, 6, requires_grad=True)
o, state = layer(x=x, **w, output_final_state=True)
truth, true_state = layer.reference(x=x, **w, output_final_state=True)
check("y is [B, T, d]", o.shape == (2, 20, 6), o.shape)
close("y", o, truth, 1e-5)
check("states are [B, h, ...]", state["conv_cq"].shape == (2, 2, 4, 4)
      and state["gated_deltanet_S"].shape == (2, 2, 4, 3))
for name in state:
    close(name, state[name], true_state[name], 1e-5)

o.square().sum().backward()
exact = {n: t.detach().double().requires_grad_() for n, t in w.items()}
x64 = x.detach().double().requires_grad_()
layer(x=x64, **exact)[0].square().sum().backward()
close("gradient of x", x.grad, x64.grad, 1e-4)
for name in w:
    close("gradient of " + name, w[name].grad, exact[name].grad, 1e-4)

few = {n: t.detach().requires_grad_() for n, t in exact.items()}
check("gradcheck", torch.autograd.gradcheck(
    lambda x, *p: layer(x=x, **dict(zip(few, p)))[0],
    (x64.detach()[:1, :4].requires_grad_(), *few.values())))

with torch.no_grad():
    tokens, s = [], None
    for t in range(20):
        one, s = layer.step(x=x[:, t:t + 1], **w, state=s)
        tokens.append(one)
    close("decoding", torch.cat(tokens, 1), o, 1e-5)
    half, s = layer(x=x[:, :11], **w, output_final_state=True)
    rest, _ = layer(x=x[:, 11:], **w, initial_state=s)
    close("goes on", torch.cat([half, rest], 1), o, 1e-5)

if hasattr(torch.library, "custom_op"):
    compiled = torch.compile(lambda x, **w: layer(x=x, **w)[0].square(),
                             fullgraph=True, backend="aot_eager")
    x1 = x.detach().requires_grad_()
    w1 = {n: t.detach().requires_grad_() for n, t in w.items()}
    y = compiled(x1, **w1)
    close("compiled", y, o.square(), 1e-5)
    y.sum().backward()
    close("its gradient", w1["Wo"].grad, w["Wo"].grad, 1e-5)

refused("a weight of another shape", flin.Error,
        "axis 'h' is 2 in A_log, but 3 in Wa",
        lambda: layer(x=x, **{**w, "Wa": torch.randn(6, 3)}))
refused("no H", flin.Error,
        "x has shape [2, 20, 1, 6], but [B, T, d] is wanted",
        lambda: layer(x=x[:, :, None], **w))
module = flin.nn.Layer("gated_deltanet", d=6, heads=2, k=4, v=3)
x2 = x.detach().requires_grad_()
o, state = module(x2[:, :11], use_cache=True)
rest, _ = module(x2[:, 11:], state=state)
close("a module goes on", torch.cat([o, rest], 1), module(x2)[0], 1e-5)
rest.square().sum().backward()
check("its parameters have gradients", all(
    p.grad is not None and p.grad.abs().max() > 0
    for n, p in module.named_parameters()))

def of_states(name, dtype, **more):
    """Gradients, by name, of a loss of the final states alone, in memory that
    was somebody's."""
    m = flin.nn.Layer(name, d=6, heads=2, k=4, v=3, dtype=dtype, **more)
    torch.manual_seed(5)
    with torch.no_grad():
        for p in m.parameters():
            p.copy_(0.5 * torch.randn(p.shape, dtype=torch.float64))
    state = m(x2.detach().to(dtype), use_cache=True)[1]
    junk = [torch.full_like(p, 7) for p in m.parameters() for _ in range(9)]
    del junk
    states = state.values() if isinstance(state, dict) else [state]
    sum(s.square().sum() for s in states).backward()
    return {n: p.grad for n, p in m.named_parameters()}


for name, more in {"gla": {"r": 2}, "gated_deltanet": {}, "mamba2": {},
                   "kda": {"r": 2, "s": 2},
                   "rwkv7": {"e": 2, "f": 2, "g": 2}}.items():
    d64 = of_states(name, torch.float64, **more)
    for n, d in of_states(name, torch.float32, **more).items():
        close(f"{name}: a loss of states alone, {n}", d, d64[n], 1e-3)
check("how they begin", bool((module.weights["norm"] == 1).all())
      and module.weights["cq"].abs().max() <= 0.5
      and module.weights["A_log"].exp().max() <= 16.01)
begun = flin.nn.LinearAttention(8, "momentum_deltanet", num_heads=2)
found = begun.inputs(torch.randn(1, 3, 8))
close("a gate begins", found["eta"], torch.full((1, 3, 2), 0.1), 1e-6)
close("a decay begins", found["mu"], torch.full((1, 3, 2), -0.1), 1e-5)
check("others differ", found["beta"].std() > 0.01)
turned = flin.nn.LinearAttention(8, """local flin = require "flin"
return flin.stdlib.deltanet_rope:map { v = function (v) return v end }
""", num_heads=2)
check("an angle begins", turned.inputs(torch.randn(1, 3, 8))["theta"].abs()
      .max() == 0)
check("an angle undone", (flin.nn.ACTIVATIONS["angle"](flin.nn.UNDONE["angle"](
    torch.tensor([-3., 0, 2]))) - torch.tensor([-3., 0, 2])).abs().max() < 1e-5)
# Weights of the same values, moved beside one another.
beside = flin.nn.Layer("gated_deltanet", d=6, heads=2, k=4, v=3)
x = torch.randn(2, 9, 6)
was = beside(x)[0].detach()
held = {n: p.detach().clone() for n, p in beside.weights.items()}
check("beside: which", beside.layer.beside == [
    (["Wq", "Wk", "Wv", "Wa", "Wb"], ["d"])])
beside.lay_beside()
for n, p in beside.weights.items():
    same(f"beside: {n}", p.detach(), held[n])
for names, _ in beside.layer.beside:
    for n, then in zip(names, names[1:]):
        p, q = beside.weights[n], beside.weights[then]
        check(f"beside: {then} behind {n}",
              q.data_ptr() == p.data_ptr() + 4 * p.numel())
same("beside: y", beside(x)[0].detach(), was)
laid = list(beside.weights.values())
found = torch.autograd.grad(beside(x)[0].sum(), laid)
check("beside: gradients come so, and nobody copies them", all(
    d.stride() == p.stride() for d, p in zip(found, laid)))
names = beside.layer.beside[0][0]
places = dict(zip(beside.weights, found))
check("beside: gradients one behind another", all(
    places[b].data_ptr() == places[a].data_ptr() + 4 * places[a].numel()
    for a, b in zip(names, names[1:])))
first = flin.nn.Layer("gated_deltanet", d=6, heads=2, k=4, v=3)
first.load_state_dict(beside.state_dict())
for n, d in zip(first.weights, torch.autograd.grad(
        first(x)[0].sum(), list(first.weights.values()))):
    same(f"beside: d_{n}", places[n], d)

# Gradients of micro-batches, added up in float32.
sums = flin.nn.Layer("gla", d=6, heads=2, k=4, v=3, r=2, dtype=torch.bfloat16)
for p in sums.weights.values():
    torch.nn.init.normal_(p, 0, 0.3)
exact = {n: p.detach().double().requires_grad_()
         for n, p in sums.weights.items()}
for p in sums.weights.values():
    p.main_grad = torch.zeros(p.shape)
for i in range(3):
    x = torch.randn(2, 9, 6).bfloat16().requires_grad_()
    dy = torch.randn(2, 9, 6).bfloat16()
    x64 = x.detach().double().requires_grad_()
    sums(x)[0].backward(dy)
    sums.layer(x=x64, **exact)[0].backward(dy.double())
    close("main_grad: dx", x.grad.double(), x64.grad, 1e-2)
for n, p in sums.weights.items():
    check(f"main_grad: {n} alone", p.grad is None
          and p.grad_added_to_main_grad)
    close(f"main_grad: {n}", p.main_grad.double(), exact[n].grad, 1e-5)
del sums.weights["Wq"].main_grad
refused("main_grad: one is missing", flin.Error, "Wq has no main_grad",
        lambda: sums(x)[0].sum().backward())

# In nn.Sequential, among modules that know nothing of states.
alone = [flin.nn.Layer("gla", d=8, heads=2, r=2, alone=True) for _ in "ab"]
chain = torch.nn.Sequential(alone[0], torch.nn.LayerNorm(8), alone[1])
x8 = torch.randn(2, 9, 8, requires_grad=True)
for module8 in chain:
    torch.nn.init.normal_(next(module8.parameters()))
y8 = chain(x8)
inner = alone[0].layer(x=x8, **alone[0].weights)[0]
close("nn.Sequential", y8, alone[1].layer(x=chain[1](inner),
                                          **alone[1].weights)[0], 0)
y8.square().sum().backward()
check("nn.Sequential: gradients", x8.grad.abs().min() > 0)
refused("a pair for x", flin.Error, "alone=True",
        lambda: alone[0]((x8, None)))
refused("alone: no state", flin.Error, "use_cache is for one that was not",
        lambda: alone[0](x8, use_cache=True))

# Plans: states go from one to the other.
outcomes = {}
for plan in "separate", "fused":
    planned = flin.nn.Layer("gated_deltanet", d=6, heads=2, k=4, v=3,
                            plan=plan)
    planned.load_state_dict(module.state_dict())
    outcomes[plan] = planned
    close(f"{plan}: y", planned(x2)[0], module(x2)[0], 1e-5)
    other = outcomes["separate"]
    o, state = other(x2[:, :11], use_cache=True)
    o, state = planned(x2[:, 11:19], state=state, use_cache=True)
    rest, _ = planned(x2[:, 19:], state=state)
    close(f"{plan}: goes on", rest, module(x2)[0][:, 19:], 1e-5)
    planned(x2)[0].square().sum().backward()
for (n, p), q in zip(outcomes["fused"].named_parameters(),
                     outcomes["separate"].parameters()):
    close(f"fused: d_{n}", p.grad, q.grad, 1e-4)
refused("no such plan", flin.Error, "there is no plan 'one'",
        lambda: flin.nn.Layer("gla", d=6, heads=2, k=4, v=3, r=2,
                              plan="one")(x2))
refused("a plan of what is loaded", flin.Error, "is loaded",
        lambda: flin.nn.Layer(module.layer, d=6, heads=2, k=4, v=3,
                              plan="fused"))

again = flin.nn.Layer("gated_deltanet", d=6, heads=2, k=4, v=3)
again.load_state_dict(module.state_dict())
close("state dicts", again(x2)[0], module(x2)[0], 0)
refused("an axis of no size", flin.Error, "how long axis h is\n"
        "  help: heads = ...", lambda: flin.nn.Layer("gla", d=6, r=2))
refused("heads that do not divide", flin.Error, "would usually be 1.5 long",
        lambda: flin.nn.Layer("gla", d=6, heads=2, r=2))
for name, more, sizes in (
        ("gla", {"heads": 4}, {"k": 128, "v": 256, "r": 16}),
        ("gated_deltanet", {"heads": 4}, {"k": 192, "v": 384, "w": 4}),
        ("kda", {}, {"h": 8, "k": 128, "v": 128, "r": 128, "s": 128, "w": 4}),
        ("mamba2", {}, {"h": 32, "k": 128, "v": 64, "w": 4}),
        ("rwkv7", {}, {"h": 16, "k": 64, "v": 64, "e": 64, "f": 64,
                       "g": 128})):
    found = flin.nn.Layer(name, d=1024, **more, device="meta").sizes
    check(f"usual sizes of {name}",
          {axis: n for axis, n in found.items() if axis in sizes} == sizes,
          str(found))
for sizes, words in (({"d": -6, "heads": 2, "k": 4}, "d is -6"),
                     ({"d": 6, "heads": 0, "k": 4}, "heads is 0"),
                     ({"d": 6, "heads": 2, "k": 4.5}, "k is 4.5")):
    refused(f"a size, {words}", flin.Error, words,
            lambda: flin.nn.Layer("gla", r=2, **sizes))
refused("no such axis", flin.Error, "has no axis 'w'",
        lambda: flin.nn.Layer("gla", d=6, heads=2, k=4, r=2, w=2))
check("check", layer.check(T=40, size=4).worst < 1e-4)
check("help", "[B, T, D]" in str(layer.describe()))
end()
