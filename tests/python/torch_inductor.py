"""torch.compile as it is by default, with inductor: one graph, the same numbers
as eagerly, forward and backward. On a GPU where there is one."""
import importlib.util
import shutil
import sys

from harness import check, close, end, flin, same, wants_custom_op

wants_custom_op()
import torch                                        # noqa: E402

gpu = torch.cuda.is_available()
if not (importlib.util.find_spec("triton") if gpu else shutil.which("g++")):
    print("skip inductor wants", "Triton" if gpu else "g++")
    sys.exit()
device, dtype = ("cuda", torch.bfloat16) if gpu else ("cpu", torch.float32)
torch.manual_seed(7)
gdn = flin.load("gated_deltanet")


def inputs(T=130, B=2):
    """q k v g beta; what inductor fuses around the call is exact in floating
    point, so that the call itself gets the same bits."""
    q, k, v = (torch.randn(B, T, 2, 64, device=device, dtype=dtype)
               for _ in range(3))
    return [q, k / 16, v, -torch.rand(B, T, 2, device=device),
            torch.rand(B, T, 2, device=device)]


def f(q, k, v, g, beta, s0=None, cu=None):
    o, state = gdn(q * 2, -k, v / 4, g=g * 0.5, beta=beta, initial_state=s0,
                   output_final_state=True, cu_seqlens=cu)
    return o * 4, state * 0.5


def agree(name, f, compiled, x, more=()):
    """Its results and gradients, compiled and eagerly."""
    found = []
    for each in (compiled, f):
        leaves = [t.detach().clone().requires_grad_() for t in x]
        results = each(*leaves, *more)
        d = [torch.ones_like(t) for t in results]
        found.append([*results, *torch.autograd.grad(results, leaves, d)])
    for i, (a, b) in enumerate(zip(*found)):
        same(f"{name}, {i}", a, b)
        check(f"{name}, {i}: strides", a.stride() == b.stride(), a.stride())


# Several lengths, so that sizes become symbols; an initial state.
compiled = torch.compile(f, fullgraph=True)
for T in (130, 131, 64):
    x = inputs(T)
    agree(f"T {T}", f, compiled, [*x, torch.randn(2, 2, 64, 64,
                                                  device=device)])
with torch.no_grad():
    for a, b in zip(compiled(*x), f(*x)):
        same("without gradients", a, b)

# Packed sequences, their ends on either side.
torch.compiler.reset()
for where in {"cpu", device}:
    for ends in ([0, 40, 40, 130], [0, 7, 130]):
        cu = torch.tensor(ends, device=where)
        agree(f"packed, {ends}, {where}", f, compiled, inputs(130, 1),
              (None, cu))

# What is not contiguous; a layer and its parameters, under AMP too.
torch.compiler.reset()
q, k, v, g, beta = inputs()
q = q.transpose(1, 2).contiguous().transpose(1, 2)
for a, b in zip(compiled(q, k, v, g, beta), f(q, k, v, g, beta)):
    same("strided", a, b)
layer = flin.nn.LinearAttention(128, "gla", num_heads=2).to(device)
h = torch.randn(2, 100, 128, device=device)
for amp in (False, True):
    found = []
    for each in (torch.compile(layer, fullgraph=True), layer):
        layer.zero_grad(set_to_none=True)
        with torch.autocast(device, dtype=torch.bfloat16, enabled=amp):
            y = each(h)[0]
        y.float().square().mean().backward()
        found.append([y] + [p.grad for p in layer.parameters()])
    for i, (a, b) in enumerate(zip(*found)):
        # Roundings that inductor leaves out between what it fuses.
        close(f"a layer{', AMP' * amp}, {i}", a.double(), b.double(),
              2e-2 if amp else 1e-4)

# CUDA graphs, recorded by inductor.
if gpu:
    torch.compiler.reset()
    recorded = torch.compile(f, fullgraph=True, mode="reduce-overhead")
    for _ in range(4):
        x = inputs(128)
        torch.compiler.cudagraph_mark_step_begin()
        with torch.no_grad():
            for a, b in zip(recorded(*x), f(*x)):
                same("a graph", a, b)
    for _ in range(3):
        torch.compiler.cudagraph_mark_step_begin()
        agree("a graph", f, recorded, inputs(128))
end()
