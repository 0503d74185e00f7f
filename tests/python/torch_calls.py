"""Calls with PyTorch tensors on the CPU: gradients, layouts, dtypes, layers."""
import copy
import gc
import importlib.util
import io
import os
import re
import signal
import sys
import threading
import time
import weakref

from harness import check, close, drawn, end, flin, refused, same, shapes

if not importlib.util.find_spec("torch"):
    print("skip no PyTorch for", sys.executable)
    sys.exit()
import torch                                        # noqa: E402

torch.set_num_threads(1)
torch.manual_seed(7)


def inputs(variant, dtype=torch.float32, grad=False, **sizes):
    x = {}
    for name, (shape, domain) in shapes(variant, **sizes).items():
        t = drawn(shape, domain, torch.float64, slow=16)
        x[name] = t.to(dtype).requires_grad_(grad)
    return x


def leaves(x, dtype=None):
    return {n: t.detach().to(dtype).requires_grad_() for n, t in x.items()}


# Autograd is the gradient of the call: differences in float64, of variants
# that have constants, several states, angles, a normaliser, ranks.
for name in ("gated_deltanet", "rwkv6", "mlstm", "retnet", "mamba2",
             "deltaproduct"):
    v = flin.load(name)
    x = inputs(v, torch.float64, True, B=2, T=3, H=1)
    x = {n: t.detach()[..., :3].requires_grad_() if n in "qkvrC" else t
         for n, t in x.items()} if name == "gated_deltanet" else x

    def outputs(*tensors):
        o, state = v(**dict(zip(x, tensors)), output_final_state=True)
        return (o, *(state.values() if isinstance(state, dict) else [state]))
    check(f"{name}: gradcheck", torch.autograd.gradcheck(
        outputs, tuple(x.values()), fast_mode=True))

gdn = flin.load("gated_deltanet")
x = inputs(gdn, torch.float64, True, B=1, T=6, H=2)
s0 = torch.randn(3, 2, 8, 6, dtype=torch.float64).requires_grad_()
x["q"] = x["q"].detach()[:, :, :1].requires_grad_()     # shared by two heads
cu = torch.tensor([0, 2, 2, 6])
softmax = flin.load("""
return require "flin".variant { name = "capped", normalise = "softmax",
  score = function (s, i, j, p)
    return 2 * require "flin".tanh(s / 2) + p.b[j]
  end }
""")
check("gradcheck: softmax, packed, shared heads", torch.autograd.gradcheck(
    lambda q, k, v, b: softmax(q, k, v, b=b,
                               cu_seqlens=torch.tensor([0, 3, 8]))[0],
    [torch.randn(*s, dtype=torch.float64, requires_grad=True)
     for s in ((1, 8, 4, 3), (1, 8, 2, 3), (1, 8, 2, 2), (1, 8, 1))]))
check("gradcheck: packed, initial states, shared heads, l2norm",
      torch.autograd.gradcheck(lambda s, *t: gdn(
          **dict(zip(x, t)), initial_state=s, cu_seqlens=cu,
          use_qk_l2norm_in_kernel=True, output_final_state=True),
          (s0, *x.values()), fast_mode=True))

# Float32 against float64, through autograd; some gradients not wanted.
x = inputs(gdn, grad=True)
s0 = torch.randn(2, 2, 8, 6).requires_grad_()
x64, s64 = leaves(x, torch.float64), s0.detach().double().requires_grad_()


def loss(x, s0):
    o, state = gdn(**x, initial_state=s0, output_final_state=True)
    return (o * o.detach().cos()).sum() + state.square().sum()


loss(x, s0).backward()
loss(x64, s64).backward()
for n in x:
    close(f"d{n}", x[n].grad, x64[n].grad, 1e-5)
close("d initial_state", s0.grad, s64.grad, 1e-5)
some = {n: t.detach() for n, t in x.items()}
some["g"].requires_grad_()
loss(some, s0.detach()).backward()
same("one gradient alone", some["g"].grad, x["g"].grad)
check("the others are not made", some["q"].grad is None)
with torch.no_grad():
    check("no_grad", not gdn(**x)[0].requires_grad)
o = gdn(**x)[0]
a, = torch.autograd.grad(o.sum(), x["v"], retain_graph=True)
b, = torch.autograd.grad(o, x["v"], torch.ones_like(o))
same("an expanded gradient", a, b)
b, = torch.autograd.grad(gdn(**x)[0].square().sum(), x["v"],
                         create_graph=True)
refused("twice", ValueError, "gated_deltanet: gradients of gradients",
        b.sum().backward)

# What forward saves: backward starts from it, to the same bits as without,
# wherever hooks have moved it; what it takes along is one tensor of bytes.
packed = {n: t.detach()[:1] for n, t in x.items()}
for name, options in (("saved", {}), ("packed", {"cu_seqlens": [0, 9, 9, 70]}),
                      ("chunk", {"chunk": 16})):
    d = {n: t.detach() for n, t in (packed if options else x).items()}
    want = gdn.backward(**d, **options, do=torch.ones(*d["v"].shape))
    for move in (0, 1):
        taken = []

        def unpack(t):
            if t.dtype != torch.uint8:
                return t
            taken.append(t)
            return torch.empty(t.numel() + 9, dtype=t.dtype)[9 * move:][
                :t.numel()].copy_(t)
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t, unpack):
            o = gdn(**(mine := leaves(d)), **options)[0]
        o.backward(torch.ones_like(o))
        check(f"{name}: one tensor of bytes", len(taken) == 1)
        for n in mine:
            same(f"{name}: d{n}, moved by {9 * move}", mine[n].grad, want[n])
with torch.autograd.graph.saved_tensors_hooks(
        lambda t: t, lambda t: t if t.dtype != torch.uint8 else t * 0):
    o = gdn(**mine)[0]
a, = torch.autograd.grad(o.sum(), mine["k"])
o = gdn(**mine)[0]
for k in torch.autograd.grad([o, o], mine["k"], [o, o], retain_graph=True), \
        torch.autograd.grad([o, o], mine["k"], [o, o]):
    taken.append(k[0])
same("saved: backward leaves it as it was", *taken[-2:])
# ... and nothing else: neither bytes of another kind nor inputs that hooks
# leave in another type.
for message, change in (
        ("comes back from a hook as torch.float32", lambda t: t.float()),
        ("saved.bytes = ", lambda t: t[:-300]),
        ("saved is of a call with another B, T", None)):
    with torch.autograd.graph.saved_tensors_hooks(
            lambda t: t, lambda t: (t.bfloat16() if t is mine["v"] else t)
            if change is None else change(t) if t.dtype == torch.uint8 else t):
        o = gdn(**mine)[0]
    refused("saved: " + message, ValueError, message, o.sum().backward)
check("saved: it is what backward starts from", (a != want["k"]).any())

# Layouts and dtypes.
d = {n: t.detach() for n, t in x.items()}
o, state = gdn(**d, output_final_state=True)
strided = {n: t.transpose(0, 1).contiguous().transpose(0, 1)
           for n, t in d.items()}
same("strided", gdn(**strided)[0], o)
wide = dict(d, beta=torch.full((1, 1, 1), 0.5).expand(2, 70, 2))
same("expanded", gdn(**wide)[0],
     gdn(**dict(d, beta=wide["beta"].contiguous()))[0])
none = gdn(**{n: t[:, :0] for n, t in d.items()}, output_final_state=True)
check("no tokens", none[0].shape == (2, 0, 2, 6) and not none[1].any())
# A variant that nobody has any more is gone, and what it was compiled to.
one = flin.load("""local flin = require "flin"
return flin.stdlib.gated_deltanet:map { q = function (q) return 2 * q end }""")
one(**d, use_qk_l2norm_in_kernel=True)
gone = weakref.ref(one)
del one
gc.collect()
check("a variant goes with its last owner", gone() is None)


def dual():
    with torch.autograd.forward_ad.dual_level():
        q = torch.autograd.forward_ad.make_dual(d["q"], d["q"])
        gdn(**dict(d, q=q))


refused("a dual number", ValueError, "forward-mode derivatives", dual)
# A scale is a number: its gradient would be lost without a word.
half = torch.tensor(0.5, requires_grad=True)
refused("a scale that learns", ValueError, "scale is a number here", gdn, **d,
        scale=half)
with torch.no_grad():
    same("a scale that learned", gdn(**d, scale=half)[0],
         gdn(**d, scale=0.5)[0])
for dtype, tolerance in ((torch.bfloat16, 6e-3), (torch.float16, 1e-3)):
    half = {n: t.to(dtype) if n in "qkv" else t for n, t in d.items()}
    h = gdn(**half)[0]
    check(f"{dtype}", h.dtype == dtype)
    close(f"{dtype}, values", h.double(), gdn.reference(**half)[0], tolerance)
    grads = leaves(half)
    gdn(**grads)[0].float().sum().backward()
    check(f"{dtype}, gradients", all(
        t.grad.dtype == t.dtype and t.grad.isfinite().all()
        for t in grads.values()))
packed = {n: t[:1] for n, t in d.items()}
for kind in (torch.int32, torch.int64):
    same(f"cu_seqlens of {kind}",
         gdn(**packed, cu_seqlens=torch.tensor([0, 70], dtype=kind))[0],
         gdn(**packed)[0])

# Decoding.
token = {n: t[:, :1] for n, t in d.items()}
s = torch.zeros_like(state)
o1, s1 = gdn.step(**token, state=s)
close("step", o1, o[:, :1], 1e-6)
o2, s2 = gdn.step(**token, state=s, inplace=True)
check("in place", s2 is s)
same("its state", s, s1)

# What is refused.
refused("an expanded state in place", ValueError, "written in place",
        gdn.step, **token, state=torch.zeros(1, 1, 1, 1).expand(2, 2, 8, 6),
        inplace=True)
refused("shapes, in the first call of all", ValueError,
        "forward: q has 70 tokens, but v has 3", flin.load("kda"),
        **dict(inputs(flin.load("kda")), v=d["v"][:, :3]))
refused("shapes", ValueError, "forward: q has 70 tokens, but v has 3", gdn,
        **dict(d, v=d["v"][:, :3]))
refused("dtype", ValueError, "q is int64", gdn,
        **dict(d, q=d["q"].long()))
bad = d["k"].clone()
bad[1, 7, 1] *= 5
for grad in (False, True):
    refused("a domain", ValueError, "k is declared unit_norm, of length 1 at "
            "most, but is 5 long at token 7, head 1 of batch entry 1", gdn,
            **dict(d, k=bad.requires_grad_(grad)), validate=True)
late_nan = gdn(**dict(d, k=d["k"].detach().requires_grad_()), validate=True)[0]
refused("a gradient", ValueError, "dy is not finite: nan at token 0",
        late_nan.sum().mul(float("nan")).backward)
refused("kinds", ValueError, "k is list", gdn, **dict(d, k=[1]))
for n in d:
    refused(f"devices: {n}", ValueError, " is on ", gdn,
            **dict(d, **{n: d[n].to("meta")}))
    refused(f"devices: all but {n}", ValueError, " is on ", gdn,
            **{m: t if m == n else t.to("meta") for m, t in d.items()})
# Without torch.library the first is asked alone.
library = hasattr(torch.library, "custom_op")
refused("devices: q", ValueError, "k is on cpu, but q on meta" if library
        else "q is on meta", gdn, **dict(d, q=d["q"].to("meta")))
refused("devices: a state", ValueError, "S is on meta, but q on cpu", gdn,
        **d, initial_state=state.to("meta"))
refused("devices: all but a state", ValueError, "S is on cpu, but q on meta"
        if library else "q is on meta", gdn,
        **{n: t.to("meta") for n, t in d.items()}, initial_state=state)
refused("cu_seqlens", ValueError, "int64 or int32 with 1 is wanted", gdn,
        **packed, cu_seqlens=torch.tensor([0.0, 70.0]))
refused("ends that are none", ValueError, "cu_seqlens is 'abc'", gdn, **packed,
        cu_seqlens="abc")
refused("no data", ValueError, "runs on cpu and cuda", gdn.backward, **{
    n: t.to("meta") for n, t in d.items()}, do=o.to("meta"))
for sparse in (d["k"].to_sparse(), d["g"][0].to_sparse_csr()):
    refused("sparse", ValueError, "a dense tensor is wanted", gdn,
            **dict(d, k=sparse))
# Tensors that are the negative of what their memory holds, row-major or not;
# first, so that no kernel was prepared for the same layout without a sign.
turned = torch.view_as_complex(torch.randn(2, 70, 2, 8, 2)).conj().imag
fresh = flin.load("gated_deltanet")
for name, t in (("strided", turned), ("row-major", torch._neg_view(d["q"])),
                ("one number", torch._neg_view(torch.ones(1).expand(
                    2, 70, 2, 8)))):
    plain = t.resolve_neg().contiguous()
    check(f"negated, {name}: is", t.is_neg() and not plain.is_neg())
    for _ in range(2):
        a, state1 = fresh(**dict(d, q=t), output_final_state=True)
        b, state2 = gdn(**dict(d, q=plain), output_final_state=True)
        same(f"negated, {name}", a, b)
    same(f"negated, {name}: not", fresh(**dict(d, q=-plain))[0],
         gdn(**dict(d, q=-plain))[0])
    same(f"negated, {name}: reference", fresh.reference(**dict(d, q=t))[0],
         gdn.reference(**dict(d, q=plain))[0])
negated = torch._neg_view(torch.randn(2, 2, 8, 6))
same("a negated state", fresh.step(**token, state=negated)[0],
     gdn.step(**token, state=negated.resolve_neg())[0])
want = gdn.step(**token, state=negated.resolve_neg())[1]
check("in place, negated", gdn.step(**token, state=negated, inplace=True)[1]
      is negated and negated.is_neg())
same("its state", negated.resolve_neg(), want)
mine = leaves({"v": d["v"]})["v"]     # autograd makes such gradients itself
y = gdn(**dict(d, v=mine))[0]
for t in turned[..., :6], torch._neg_view(torch.randn(2, 70, 2, 6)):
    same("a negated gradient", *(torch.autograd.grad(
        y, mine, t, retain_graph=True)[0] for t in (t, t.resolve_neg())))
s = torch.zeros_like(state)
kept = gdn(**dict(d, v=mine), initial_state=s)[0]
gdn.step(**token, state=s, inplace=True)
refused("a state that backward wants, overwritten", RuntimeError,
        "modified by an inplace operation", kept.sum().backward)
rows = [torch.randn(70, 2, 8)] * 2
for layout in {}, dict(layout=getattr(torch, "jagged", None)):
    if layout.get("layout", torch):     # PyTorch 2.1 on
        refused("nested", ValueError, "a dense tensor is wanted", gdn,
                **dict(d, q=torch.nested.nested_tensor(rows, **layout)))
refused("many dimensions", ValueError, "q has 9 dimensions: at most 8", gdn,
        **dict(d, q=d["q"].view(2, 70, 2, 8, 1, 1, 1, 1, 1)))
refused("no end of tokens", ValueError, "a tensor has at most 2^48 bytes",
        flin.load("linear"), *[torch.zeros(1).expand(1, 2 ** 62, 1, 1)] * 3)
refused("no ends", ValueError, "cu_seqlens is empty", gdn, **packed,
        cu_seqlens=torch.zeros(0, dtype=torch.int64))
odd = torch.frombuffer(bytearray(2 * 70 * 2 * 8 * 4 + 1), offset=1,
                       dtype=torch.float32).view(2, 70, 2, 8)
refused("between elements", ValueError, "q is not aligned to its elements",
        gdn, **dict(d, q=odd))
# Results that would lie on themselves, or on what is read.
folded = torch.zeros(300).as_strided((2, 2, 8, 6), (96, 48, 6, 3))
refused("a state on itself", ValueError, "several of its elements in one",
        gdn.step, **token, state=folded, inplace=True)
whole = torch.zeros(2, 2, 8, 6)
refused("a state on an input", ValueError, "final.S and q overlap", gdn.step,
        **dict(token, q=whole.view(-1)[7:39].view(2, 1, 2, 8)), state=whole,
        inplace=True)
freed = d["q"].clone()
(freed.untyped_storage() if hasattr(freed, "untyped_storage")
 else freed.storage()).resize_(0)
refused("freed", ValueError, "[2, 70, 2, 8] has no memory", gdn,
        **dict(d, q=freed))

# A projection of any size is brought into each domain that there is.
domains = re.findall(r"^DOMAIN\((\w+)", open(os.path.join(
    os.path.dirname(__file__), "../../compiler/domains.def")).read(), re.M)
domains.remove("index")         # of inputs of layers alone
for domain in domains:
    one = flin.load(f"""local flin = require "flin"
    return flin.variant {{ input = {{ a = "t k : {domain}" }},
      step = function (x) return {{}}, flin.sum(x.a) end }}""")
    a = flin.nn.ACTIVATIONS[domain](100 * torch.randn(1, 50, 2, 8))
    one(a=a, validate=True)
check("each domain", len(domains) == len(flin.nn.ACTIVATIONS) > 0)

# A layer of every variant: by halves, with its gradients, under AMP.
for name in flin.stdlib_names():
    layer = flin.nn.LinearAttention(16, name, num_heads=2)
    h = torch.randn(2, 20, 16)
    y, _ = layer(h)
    y1, state = layer(h[:, :12], use_cache=True)
    y2, state = layer(h[:, 12:], state=state, use_cache=True)
    close(f"{name}: a layer by halves", torch.cat([y1, y2], 1), y, 2e-5)
    y.square().sum().backward()
    check(f"{name}: every parameter learns", all(
        p.grad is not None and p.grad.isfinite().all() and p.grad.any()
        for p in layer.parameters()))
    for empty in (h[:, :0], h[:0], h[:0, :0]):      # no tokens, no sequences
        layer.zero_grad()
        y, state = layer(empty.requires_grad_(), use_cache=True)
        y.sum().backward()
        check(f"{name}: a layer of nothing", y.shape == empty.shape
              and not any(p.grad.any() for p in layer.parameters()))
    gates = [a for a in layer.variant.inputs if a.timed]
    begun = layer.inputs(torch.zeros(1, 1, 16))
    check(f"{name}: gates have biases, steps begin small", all(
        (layer.projections[a.name].bias is not None)
        == (a.domain in ("log_decay", "unit", "positive")
            or a.name in layer.variant.initial())
        and (a.domain != "positive" or 9e-4 < begun[a.name].min()
             and begun[a.name].max() < 0.11) for a in gates))
with torch.autocast("cpu", dtype=torch.bfloat16):
    y, _ = layer(h)
    y.float().square().sum().backward()
check("AMP", all(p.grad.dtype == torch.float32 and p.grad.isfinite().all()
                 for p in layer.parameters()))

layer = flin.nn.LinearAttention(16, "gla", num_heads=2)
twin = copy.deepcopy(layer)
file = io.BytesIO()
torch.save(layer, file)
file.seek(0)
for name, other in (("copied", twin), ("pickled", torch.load(file, **(
        {} if torch.__version__ < "2" else {"weights_only": False})))):
    same(f"a layer {name}", other(h)[0], layer(h)[0])
check("a copy has weights of its own",
      twin.out.weight.data_ptr() != layer.out.weight.data_ptr())
refused("a layer's input", ValueError, "x has shape [2, 20, 8], but [B, T, 16]",
        layer, h[..., :8])
refused("a layer's heads", ValueError, "not shared evenly by num_heads = 3",
        flin.nn.LinearAttention, 16, "gla", num_heads=3)

refused("how many heads", ValueError, "num_heads = 2.5", flin.nn.
        LinearAttention, 16, "gla", num_heads=2.5)
refused("a layer's axes", ValueError, "gla has no axis 'w'; axes: k, v",
        flin.nn.LinearAttention, 16, "gla", axes={"w": 3})

# One variant in several threads, forwards and backwards.
found = [None] * 4


def work(i):
    mine = leaves(d)
    gdn(**mine)[0].square().sum().backward()
    found[i] = mine["k"].grad


threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
for t in threads:
    t.start()
for t in threads:
    t.join()
for i in range(1, 4):
    same("threads", found[i], found[0])

# Ctrl-C ends a long call, and so does what another signal's handler raises; the
# next one works. (The reference goes token by token: this one would take
# minutes.)
class Late(Exception):
    pass


def late(*_):
    raise Late


sent = []


def press(number):
    sent.append(time.monotonic())
    signal.raise_signal(number)


# in the background of a shell it would be ignored
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGALRM, late)
long = inputs(gdn, B=1, T=400000, H=4)
for number, kind in ((signal.SIGALRM, Late),
                     (signal.SIGINT, KeyboardInterrupt)):
    try:
        threading.Timer(0.2, press, (number,)).start()
        gdn.reference(**long)
        check(f"{kind.__name__}", False, "it ran to its end")
    except kind:
        check(f"{kind.__name__}", time.monotonic() - sent[-1] < 2,
              time.monotonic() - sent[-1])
    same("afterwards", gdn(**d)[0], o)
end()
