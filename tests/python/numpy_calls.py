"""Calls with NumPy arrays, where PyTorch may be absent."""
import copy
import importlib.util
import os
import pickle
import sys
import threading
import warnings

from harness import check, close, end, flin, refused, same, shapes

if not importlib.util.find_spec("numpy"):
    print("skip no NumPy for", sys.executable)
    sys.exit()
import numpy as np                                  # noqa: E402

rng = np.random.default_rng(7)


def inputs(variant, dtype="float32", **sizes):
    x = {}
    for name, (shape, domain) in shapes(variant, **sizes).items():
        a = rng.standard_normal(shape)
        if domain == "log_decay":
            a = -np.abs(a)
        elif domain in ("unit", "positive"):
            a = rng.random(shape) * 0.5
        elif domain == "unit_norm":
            a /= np.linalg.norm(a, axis=-1, keepdims=True)
        x[name] = a.astype(dtype)
    return x


def double(x):
    return {name: a.astype("float64") for name, a in x.items()}


# Every variant: o, states and gradients, against the float64 step.
for name in flin.stdlib_names():
    v = flin.load(name)
    x = inputs(v)
    o, state = v(**x, output_final_state=True)
    o64, state64 = v.reference(**x, output_final_state=True)
    check(f"{name}: dtype", o.dtype == np.float32 and o64.dtype == np.float64)
    close(f"{name}: o", o, o64, 1e-5)
    if len(v.states) == 1:
        close(f"{name}: state", state, state64, 1e-5)
    do = rng.standard_normal(o.shape).astype("f")
    grad = v.backward(**x, do=do)
    grad64 = v.backward(**double(x), do=do.astype("float64"))
    check(f"{name}: gradients", list(grad) == [a.name for a in v.inputs])
    for n in grad:
        close(f"{name}: d{n}", grad[n], grad64[n], 1e-4)

# An input whose name is a word of Python's own.
mamba = flin.load("mamba3")
m = inputs(mamba)
o = mamba(**m)[0]
m["lambda_"] = m.pop("lambda")
same("lambda_", mamba(**m)[0], o)
refused("lambda__", TypeError, "no argument 'lambda__'", mamba, **m,
        lambda__=o)

gdn = flin.load("gated_deltanet")
x = inputs(gdn)
q, k, v = (x.pop(n) for n in "qkv")
o, state = gdn(q, k, v, **x, output_final_state=True)
check("no state unless asked for", gdn(q, k, v, **x)[1] is None)
same("by name", gdn(q=q, k=k, v=v, **x)[0], o)

# Scale: q times K^-1/2, where y is proportional to q; l2norm.
close("scale", gdn(q * np.float32(8 ** -0.5), k, v, **x, scale=1)[0], o, 1e-6)
close("scale = 3", gdn(q, k, v, **x, scale=3)[0],
      gdn(q * np.float32(3), k, v, **x, scale=1)[0], 1e-6)
mlstm = flin.load("mlstm")
m = inputs(mlstm)
same("no scale where y is not proportional to q", mlstm(**m)[0],
     mlstm(**m, scale=1)[0])
unit = [a / np.sqrt((a * a).sum(-1, keepdims=True) + 1e-6) for a in (q, k)]
close("l2norm", gdn(q, k, v, **x, use_qk_l2norm_in_kernel=True)[0],
      gdn(*unit, v, **x)[0], 1e-6)

# Tokens at once: other rounding, the same numbers.
wide = gdn(q, k, v, **x, chunk=64)[0]
for chunk in (1, 16, 33, 256):
    close(f"chunk {chunk}", gdn(q, k, v, **x, chunk=chunk)[0], wide, 1e-6)
check("chunk: other bits", (gdn(q, k, v, **x, chunk=16)[0] != wide).any())
do = rng.standard_normal(o.shape).astype("f")
dk, wide = (gdn.backward(q, k, v, **x, do=do, chunk=n)["k"] for n in (16, 64))
close("chunk: gradients", dk, wide, 1e-5)
check("chunk: theirs, too", (dk != wide).any())

# Two halves make the whole; packed sequences are as they are alone.
first = {n: a[:, :33] for n, a in x.items()}
rest = {n: a[:, 33:] for n, a in x.items()}
o1, s1 = gdn(q[:, :33], k[:, :33], v[:, :33], **first,
             output_final_state=True)
o2, s2 = gdn(q[:, 33:], k[:, 33:], v[:, 33:], **rest, initial_state=s1,
             output_final_state=True)
close("halves", np.concatenate([o1, o2], 1), o, 1e-6)
close("their state", s2, state, 1e-6)
cu = [0, 20, 20, 70]
one = {n: a[:1] for n, a in x.items()}
packed, states = gdn(q[:1], k[:1], v[:1], **one, output_final_state=True,
                     cu_seqlens=cu)
alone = {n: a[:, 20:] for n, a in one.items()}
close("packed", packed[:, 20:],
      gdn(q[:1, 20:], k[:1, 20:], v[:1, 20:], **alone)[0], 1e-6)
check("an empty sequence's state", states.shape[0] == 3
      and not states[1].any())

# Decoding, in place or not.
token = {n: a[:, :1] for n, a in x.items()}
qkv = [a[:, :1] for a in (q, k, v)]
s = np.zeros_like(state)
o1, s1 = gdn.step(*qkv, **token, state=s)
close("step", o1, o[:, :1], 1e-6)
check("the state given is left alone", not s.any())
o2, s2 = gdn.step(*qkv, **token, state=s, inplace=True)
check("in place", s2 is s)
same("its state", s, s1)

# Layouts: strided, reversed, broadcast; empty tensors.
t = np.ascontiguousarray(q.transpose(3, 2, 0, 1)).transpose(2, 3, 1, 0)
same("transposed", gdn(t, k, v, **x)[0], o)
same("reversed", gdn(q[:, ::-1][:, ::-1], k, v, **x)[0], o)
half = np.full((1, 1, 1), 0.5, "f")
wide = np.broadcast_to(half, (2, 70, 2))
same("broadcast", gdn(q, k, v, g=x["g"], beta=wide)[0],
     gdn(q, k, v, g=x["g"], beta=wide.copy())[0])
none = {n: a[:, :0] for n, a in x.items()}
check("no tokens", gdn(q[:, :0], k[:, :0], v[:, :0], **none)[0].shape
      == (2, 0, 2, 6))
g2 = {n: a.astype("float16") for n, a in x.items()}
half = gdn(q, k, v.astype("float16"), **g2)[0]
check("float16", half.dtype == np.float16)
close("its values", half.astype("f"), o, 4e-3)

# Copied and pickled.
check("a copy is itself", copy.deepcopy(gdn) is gdn and copy.copy(gdn) is gdn)
same("pickled", pickle.loads(pickle.dumps(gdn))(q, k, v, **x)[0], o)

# A text, a file with an error, a mask.
text = """
local flin = require "flin"
return flin.variant { name = "m", mask = function (i, j, p)
  if i < j then return 0 end
  return flin.exp(p.g_cumsum[i] - p.g_cumsum[j])
end }
"""
mask, simple = flin.load(text), flin.load("simple_gla")
close("a mask", mask(q, k, v, g=x["g"])[0], simple(q, k, v, g=x["g"])[0],
      1e-6)
same("a pickled mask", pickle.loads(pickle.dumps(mask))(q, k, v, g=x["g"])[0],
     mask(q, k, v, g=x["g"])[0])
quadratic = flin.load("""
return require "flin".variant { name = "near", mode = "quadratic",
  mask = function (i, j) return i < j and 0 or 1 / (1 + i - j) end }
""")
refused("a mask that is not factored takes q as it is", ValueError,
        "near: neither scale nor", quadratic, q, k, v)
close("its call", quadratic(q, k, v, scale=1)[0],
      quadratic.reference(q, k, v, scale=1)[0], 1e-5)
softmax = flin.load("""
return require "flin".variant { name = "attention", normalise = "softmax" }
""")
scores = np.einsum("bihd,bjhd->bhij", q, k) / q.shape[-1] ** 0.5
scores[..., np.triu(np.ones(scores.shape[-2:], bool), 1)] = -np.inf
weights = np.exp(scores - scores.max(-1, keepdims=True))
close("softmax attention", softmax(q, k, v)[0], np.einsum(
    "bhij,bjhd->bihd", weights / weights.sum(-1, keepdims=True), v), 1e-5)
refused("a script's error", ValueError, "text:2: ", flin.load,
        "local flin = require 'flin'\nreturn flin.variant { name = 'x' }")
try:
    flin.load("\nreturn 1 +")
except flin.Error as e:
    check("its place", e.line == 2 and e.file == "text", (e.line, e.file))

# What is refused, in flin's words or Python's.
refused("no such variant", ValueError, "did you mean 'gated_deltanet'?",
        flin.load, "gated_deltanett")
refused("no such file", ValueError, "nowhere.lua", flin.load, "nowhere.lua")
refused("shapes", ValueError, "forward: q has 70 tokens, but v has 3", gdn, q,
        k, v[:, :3], **x)
refused("dtype", ValueError, "q is int64", gdn, q.astype(int), k, v, **x)
refused("kinds", ValueError, "k is list", gdn, q, [1], v, **x)
refused("masks", ValueError, "q is a masked array", gdn,
        np.ma.masked_array(q, q > 0), k, v, **x)
refused("missing", TypeError, "v, beta are missing", gdn, q, k, g=q)
refused("missing, as a ValueError", ValueError, "beta is missing; inputs: q, "
        "k, v, beta, g", gdn, q, k, v, g=q)
refused("unknown", TypeError, "did you mean 'output_final_state'?", gdn, q, k,
        v, output_finalstate=True)
refused("unlike any", TypeError, "no argument 'x'\n  help: inputs: q, k", gdn,
        q, k, v, x=q)
refused("by position", TypeError, "only q, k, v may be", gdn, q, k, v, q)
refused("no gradients given", ValueError, "neither do nor dstate", gdn.backward,
        q, k, v, **x)
refused("do", ValueError, "do has shape [2, 70, 2, 5], but [2, 70, 2, 6]",
        gdn.backward, q, k, v, **x, do=do[..., :5])
refused("scale", ValueError, "scale is 'x': a number", gdn, q, k, v, **x,
        scale="x")
for scale in (float("nan"), float("inf")):
    refused("scale", ValueError, f"scale is {scale}: a finite", gdn, q, k, v,
            **x, scale=scale)
refused("a zero byte", ValueError, "a zero byte is in the text", flin.load,
        "return 1\0\n")
refused("ends that are none", ValueError, "cu_seqlens is [[0], [1, 2]]", gdn,
        q[:1], k[:1], v[:1], **one, cu_seqlens=[[0], [1, 2]])
refused("an endless scale", ValueError, "a number is wanted", gdn, q, k, v,
        **x, scale=10 ** 400)
refused("many dimensions", ValueError, "q has 9 dimensions", gdn,
        q.reshape(q.shape + (1,) * 5), k, v, **x)
refused("no ends", ValueError, "cu_seqlens is empty", gdn, q[:1], k[:1],
        v[:1], **one, cu_seqlens=np.zeros(0, int))
for chunk in (0, 257, 16.5, "64", True):
    refused("chunk", ValueError, f"chunk = {chunk!r}: 1 to 256", gdn, q, k, v,
            **x, chunk=chunk)
refused("none by position", TypeError, "mamba2: 1 argument by position: all "
        "go by name: ", flin.load("mamba2"), q)
serial = """
local flin = require "flin"
return flin.variant { name = "%s", input = { k = "t k", v = "t v" },
  state = { S = "k v" }, step = function (x, s)
    local S = flin.tanh(s.S) + flin.outer(x.k, x.v)
    return { S = S }, flin.dot(x.k, S)
  end }
"""
token_by_token = flin.load(serial % "serial")
check("repr's road", ":5: tanh(S) is not linear in S"
      in repr(token_by_token) and "; runs in chunks" in repr(gdn))
check("form", token_by_token.form.startswith("  1. S [k v] = "))
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    for n in range(3):
        token_by_token(k=k, v=v)
        token_by_token.backward(k=k, v=v, do=np.ones_like(v))
    gdn(q, k, v, **x)
check("said once, here", len(said) == 1 and said[0].filename == __file__
      and "serial goes token by token (said once): " in
      str(said[0].message), said)

for number in (np.float32(0.5), 0.5, 2):
    refused("a number", ValueError, f"g is the number {number}: a NumPy array "
            "is wanted", gdn, q, k, v, **dict(x, g=number))
refused("a number first", ValueError, "q is the number 1.0: a NumPy array",
        gdn, np.float32(1), k, v, **x)
refused("a list", ValueError, "g is list, but q is a NumPy array", gdn, q, k,
        v, **dict(x, g=[0.5]))
for value in (1, "yes"):
    refused("validate", ValueError, f"validate = {value!r}: True, False", gdn,
            q, k, v, **x, validate=value)

# What breaks its domain, and what is not finite, says where.
same("validated", gdn(q, k, v, **x, validate=np.bool_(True))[0],
     gdn(q, k, v, **x)[0])
gates = {**x, "g": 1 / (1 + np.exp(x["g"]))}
long = rng.standard_normal(k.shape).astype("f")
for f in (gdn, gdn.reference,
          lambda *a, **n: gdn.backward(*a, **n, do=np.ones_like(v))):
    refused("sigmoids as gates", ValueError, "g is declared log_decay, at most "
            "0, but is 0.", f, q, k, v, **gates, validate=True)
    refused("long keys", ValueError, "k is declared unit_norm", f, q, long, v,
            **x, validate=True)
refused("of one token", ValueError, "at token 0, head 0", gdn.step, **{
    n: a[:, :1] for n, a in dict(gates, q=q, k=k, v=v).items()}, validate=True)
check("normalised there", np.isfinite(gdn(
    q, long, v, **x, use_qk_l2norm_in_kernel=True, validate=True)[0]).all())
free = flin.load("""
local flin = require "flin"
return flin.variant {
  name = "free", state = { S = "k v" },
  input = { q = "t k", k = "t k", v = "t v", beta = "t : unit" },
  step = function (x, s)
    local S = s.S + flin.outer(x.beta * x.k, x.v - flin.dot(x.k, s.S))
    return { S = S }, flin.dot(x.q, S)
  end,
}
""")
for validate, text in (("growth", "keys are not of unit length: |k|^2 beta "),
                       (True, "y is not finite")):
    refused("what grows", ValueError, text, free, np.tile(q, (1, 9, 1, 1)),
            np.tile(2 * long, (1, 9, 1, 1)), np.tile(v, (1, 9, 1, 1)),
            beta=np.tile(x["beta"], (1, 9, 1)), validate=validate)
os.environ["FLIN_CHECK"] = "1"
refused("asked for by the environment", ValueError, "g is declared log_decay",
        gdn, q, k, v, **gates)
same("scale is found all the same",
     flin.load("gated_deltanet")(q, k, v, **x)[0], gdn(q, k, v, **x)[0])
check("not there", gdn(q, k, v, **gates, validate=False)[0] is not None)
os.environ["FLIN_CHECK"] = "0"
check("0 is no", gdn(q, k, v, **gates)[0] is not None)
del os.environ["FLIN_CHECK"]
refused("which state", TypeError, "several states: C, m, n", mlstm, **m,
        initial_state=state)
refused("cu_seqlens", ValueError, "ends at 60", gdn, q[:1], k[:1], v[:1],
        **one, cu_seqlens=[0, 60])
refused("no query", ValueError, "no input q or r", flin.load("mamba2"),
        **inputs(flin.load("mamba2")), scale=2)
frozen = np.zeros_like(state)
frozen.flags.writeable = False
refused("read-only", ValueError, "can be written in place", gdn.step, *qkv,
        **token, state=frozen, inplace=True)

# A step that is another than when it was traced: the truth is what it says
# now, and its trace has no gradients for it.
changing = flin.load("""local flin = require "flin"
local factor = 1
function change() factor = 2 end
return flin.variant {
  input = { q = "t k", k = "t k", v = "t v" }, state = { S = "k v" },
  step = function (x, s)
    local S = 0.5 * s.S + factor * flin.outer(x.k, x.v)
    return { S = S }, flin.dot(x.q, S)
  end,
}""")
ones = np.ones((1, 60, 1, 1))
before = changing.reference(ones, ones, ones, scale=1)[0]
refused("no variant", ValueError, "", flin.load, "change()\nreturn 1")
o64 = changing.reference(ones, ones, ones, scale=1)[0]
check("the function is the reference", abs(before[0, -1, 0, 0] - 2) < 1e-9
      and abs(o64[0, -1, 0, 0] - 4) < 1e-9)
refused("no gradients of it", ValueError, "the step is not what its trace says",
        changing.backward, ones, ones, ones, do=ones, scale=1)

# One variant, several threads.
found = [None] * 4


def work(i):
    for _ in range(5):
        found[i] = gdn(q, k, v, **x)[0]


threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
for t in threads:
    t.start()
for t in threads:
    t.join()
for i in range(4):
    same("threads", found[i], o)
# What goes token by token says so, in whatever variant the scale has made.
for y, scaled in (("S", "no"), ("flin.dot(x.q, S)", "K^-1/2")):
    serial = flin.load("""local flin = require "flin"
    return flin.variant { input = { q = "t k", v = "t v" },
      state = { S = "k v" }, step = function (x, s)
        local S = flin.tanh(s.S + flin.outer(x.q, x.v))
        return { S = S }, """ + y + " end }")
    check("note: before a call", serial.note is None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        serial(q, v)
    check(f"note: {scaled} scale", "tanh(" in str(serial.note), serial.note)
check("note: in chunks", gdn.note is None, gdn.note)

end()
