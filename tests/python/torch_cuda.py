"""Calls with PyTorch tensors on a GPU: streams, graphs, gradients, layers."""
import gc
import importlib.util
import os
import sys
import tempfile

from harness import check, close, drawn, end, flin, refused, same, shapes

if not os.path.exists("/dev/nvidiactl"):
    print("skip no GPU")
    sys.exit()
if not importlib.util.find_spec("torch"):
    print("skip no PyTorch for", sys.executable)
    sys.exit()
import torch                                        # noqa: E402
import torch.distributed as dist                    # noqa: E402

torch.manual_seed(7)
HALF = {torch.bfloat16: 6e-3, torch.float16: 3e-3}


def inputs(variant, dtype=torch.bfloat16, **sizes):
    """Matrices of this type; gates and other vectors in float32."""
    x = {}
    for name, (shape, domain) in shapes(variant, **sizes).items():
        shape = tuple(64 if n in (6, 8) else 32 if n == 4 else n
                      for n in shape)
        t = drawn(shape, domain)
        x[name] = t.cuda().to(dtype if name in "qkvrxBC" else torch.float32)
    return x


def cpu(x, dtype=None):
    return {n: t.detach().cpu().to(dtype or t.dtype) for n, t in x.items()}


def by_name(state):
    """One state comes as it is, several as a dict."""
    return state if isinstance(state, dict) else {"state": state}


# Layers: forward, states, gradients, packed sequences, graphs.
SIZES = {"d": 256, "heads": 4, "k": 64, "v": 64}
for name in "gla", "gated_deltanet":
    more = {"r": 16} if name == "gla" else {}
    module = flin.nn.Layer(name, **SIZES, **more)
    with torch.no_grad():               # zeros would hide what is before them
        for p in module.parameters():
            if not p.any():
                p.normal_(0, 0.1)
    exact = {n: p.detach().double().requires_grad_()
             for n, p in module.weights.items()}
    x = torch.randn(2, 200, 256)
    x64 = x.double().requires_grad_()
    o64, s64 = module.layer(x=x64, **exact, output_final_state=True)
    dy = torch.randn_like(x)
    (o64 * dy).sum().backward()
    for dtype, tolerance in ((torch.float32, 2e-4), (torch.bfloat16, 2e-2)):
        there = flin.nn.Layer(name, **SIZES, **more, device="cuda",
                              dtype=dtype)
        there.load_state_dict(module.state_dict())
        x1 = x.cuda().to(dtype).requires_grad_()
        o, s = there(x1, use_cache=True)
        check(f"layer {name}: on the GPU", o.is_cuda and o.dtype == dtype)
        close(f"layer {name}: o", o.cpu().double(), o64, tolerance)
        found, wanted = by_name(s), by_name(s64)
        check(f"layer {name}: states", found.keys() == wanted.keys())
        for n in found:
            close(f"layer {name}: {n}", found[n].cpu().double(), wanted[n],
                  tolerance)
        o.backward(dy.cuda().to(dtype), retain_graph=True)
        leaves = {"x": x1, **there.weights}
        for n, d in zip(leaves, torch.autograd.grad(
                o, leaves.values(), dy.cuda().to(dtype))):
            same(f"layer {name}: d{n}, the last time", d, leaves[n].grad)
        close(f"layer {name}: dx", x1.grad.cpu().double(), x64.grad,
              2 * tolerance)
        for n, p in there.weights.items():
            close(f"layer {name}: d{n}", p.grad.cpu().double(),
                  exact[n].grad, 3 * tolerance)
        with torch.no_grad():
            half, s = there(x1[:, :111], use_cache=True)
            rest, _ = there(x1[:, 111:], state=s)
            close(f"layer {name}: goes on", torch.cat([half, rest], 1), o,
                  tolerance)
            cu = torch.tensor([0, 7, 7, 200])
            packed = there(x1[:1], cu_seqlens=cu)[0]
            on = there(x1[:1], cu_seqlens=cu.cuda())[0]
            close(f"layer {name}: ends on the device", on, packed, 1e-6)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                recorded = there(x1)[0]
            graph.replay()
            close(f"layer {name}: a graph", recorded, o.detach(), 1e-6)

# Forward, states and gradients against the float64 step.
for name in ("simple_gla", "gla", "deltanet", "gated_deltanet", "kda",
             "rwkv6"):
    v = flin.load(name)
    for dtype, tolerance in HALF.items():
        x = inputs(v, dtype)
        o, state = v(**x, output_final_state=True)
        o64, state64 = v.reference(**cpu(x), output_final_state=True)
        check(f"{name}: on the GPU", o.is_cuda and o.dtype == dtype)
        close(f"{name}: o, {dtype}", o.cpu().double(), o64, tolerance)
        close(f"{name}: state, {dtype}", state.cpu().double(), state64,
              tolerance)
        leaves = {n: t.requires_grad_() for n, t in x.items()}
        exact = {n: t.requires_grad_()
                 for n, t in cpu(x, torch.float64).items()}
        dy = torch.randn_like(o)
        try:
            v(**leaves)[0].backward(dy)
        except Exception as e:
            check(f"{name}: gradients, {dtype}", False, e)
            continue
        v(**exact)[0].backward(dy.cpu().double())
        for n in x:
            close(f"{name}: d{n}, {dtype}", leaves[n].grad.cpu().double(),
                  exact[n].grad, 2e-2)

gla = flin.load("simple_gla")
x = inputs(gla, B=2, T=130, H=2)
o = gla(**x)[0]

# The current stream; the same bits.
stream = torch.cuda.Stream()
stream.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(stream):
    slow = {n: t.clone() for n, t in x.items()}
    torch.cuda._sleep(20_000_000)
    for n, t in slow.items():
        t.copy_(x[n] * 1)
    other = gla(**slow)[0]
torch.cuda.current_stream().wait_stream(stream)
same("another stream", other, o)

# A recorded graph, replayed on new numbers.
static = {n: t.clone() for n, t in x.items()}
gla(**static)
torch.cuda.synchronize()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    recorded = gla(**static)[0]
fresh = inputs(gla, B=2, T=130, H=2)
for n in static:
    static[n].copy_(fresh[n])
graph.replay()
same("a graph", recorded, gla(**fresh)[0])

# What is let go while somebody records does not end that.
other = flin.load("linear")
other(x["q"], x["k"], x["v"])
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    del other
    gc.collect()
    recorded = gla(**static)[0]
graph.replay()
same("a graph, beside what is let go", recorded, gla(**fresh)[0])

# Training: the same bits as without what forward saves; in a recorded graph.
leaves = {n: t.clone().requires_grad_() for n, t in x.items()}
dy = torch.randn_like(o)


def train():
    return torch.autograd.grad(gla(**leaves)[0], list(leaves.values()), dy)


want = gla.backward(**x, do=dy)
with torch.cuda.stream(stream):
    for n, a in zip(leaves, train()):
        same(f"saved: d{n}", a, want[n])
torch.cuda.current_stream().wait_stream(stream)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    recorded = train()
with torch.no_grad():
    for n in leaves:
        leaves[n].copy_(fresh[n])
graph.replay()
for n, a, b in zip(leaves, recorded, train()):
    same(f"a graph: d{n}", a, b)
close("chunk", gla(**x, chunk=32)[0].double(), o.double(), 6e-3)

# Packed sequences, their ends on either side; layouts; decoding.
row = {n: t[:1] for n, t in x.items()}
ends = torch.tensor([0, 40, 40, 130])
a, state = gla(**row, cu_seqlens=ends, output_final_state=True)
b = gla(**row, cu_seqlens=ends.cuda())[0]
same("ends on the GPU", b, a)
check("an empty sequence's state", not state[1].any())
close("packed", a[:, :40].double(),
      gla(**{n: t[:, :40] for n, t in row.items()})[0].double(), 1e-6)
strided = dict(x, q=x["q"].transpose(1, 2).contiguous().transpose(1, 2))
close("strided", gla(**strided)[0].double(), o.double(), 1e-3)
s, steps = None, []
for t in range(5):
    y, s = gla.step(**{n: u[:, t:t + 1] for n, u in x.items()}, state=s)
    steps.append(y)
close("step", torch.cat(steps, 1).double(), o[:, :5].double(), 6e-3)
none = gla(**{n: t[:, :0] for n, t in x.items()})[0]
check("no tokens", none.shape == (2, 0, 2, 64))

# Layers, under AMP; compiled; what is refused.
layer = flin.nn.LinearAttention(128, "simple_gla", num_heads=2).cuda()
h = torch.randn(2, 100, 128, device="cuda")
with torch.autocast("cuda", dtype=torch.bfloat16):
    y, _ = layer(h)
    try:
        y.float().square().mean().backward()
        check("AMP", all(p.grad is not None and p.grad.isfinite().all()
                         for p in layer.parameters()))
    except Exception as e:
        check("AMP", False, e)
if hasattr(torch.library, "custom_op"):
    f = torch.compile(lambda **x: gla(**x)[0] + 1, fullgraph=True,
                      backend="aot_eager")
    with torch.no_grad():
        same("compiled", f(**x), o + 1)
    for n, a, b in zip(leaves, train(), torch.autograd.grad(
            f(**leaves), list(leaves.values()), dy)):
        same(f"compiled: d{n}", b, a)
    found = torch.library.opcheck(
        torch.ops.flin.forward.default,
        (gla.key, list(leaves.values()), [], 0, None, 0, None, False, True))
    check("opcheck", set(found.values()) == {"SUCCESS"}, found)
# DistributedDataParallel over the layer, its one process on this GPU.
if dist.is_available() and dist.is_nccl_available():
    layer.zero_grad(set_to_none=True)
    layer(h)[0].square().mean().backward()
    want = [p.grad for p in layer.parameters()]
    layer.zero_grad(set_to_none=True)
    os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("nccl", rank=0, world_size=1,
                                init_method=f"file://{folder}/store")
        model = torch.nn.parallel.DistributedDataParallel(layer, [0])
        model(h)[0].square().mean().backward()
        torch.cuda.synchronize()
        dist.destroy_process_group()
    for (n, p), grad in zip(layer.named_parameters(), want):
        close(f"DDP: d{n}", p.grad, grad, 1e-6)
refused("devices", ValueError, "k is on cpu, but q on cuda:0", gla,
        **dict(x, k=x["k"].cpu()))
refused("float64", ValueError, "float64 is computed on the CPU alone", gla,
        **{n: t.double() for n, t in x.items()})
if torch.cuda.device_count() > 1:
    second = {n: t.to("cuda:1") for n, t in x.items()}
    same("a second GPU", gla(**second)[0].to("cuda:0"), o)
end()
