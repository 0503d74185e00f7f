"""What variants say of themselves, where neither NumPy nor PyTorch need be:
signatures, help, plans, checks; the package's own marks."""
import importlib.util
import inspect
import keyword
import os
import pickle
import pydoc
import warnings

from harness import check, end, flin, refused

gdn = flin.load("gated_deltanet")

# The package: its version, and that type checkers may trust it.
check("version", flin.__version__ == flin.version
      and flin.version.count(".") == 2, flin.__version__)
check("py.typed", os.path.exists(os.path.join(
    os.path.dirname(flin.__file__), "py.typed")))
for owner, names in ((flin, flin.__all__), (flin.Variant, dir(flin.Variant))):
    for name in names:
        f = getattr(owner, name, None)
        if not inspect.isfunction(f) or name[0] == "_" and name != "__call__":
            continue
        bare = [p.name for p in inspect.signature(f).parameters.values()
                if p.annotation is p.empty and p.name != "self"]
        check(f"{name}: types", not bare
              and "return" in getattr(f, "__annotations__", {}), bare)
        check(f"{name}: help", bool(f.__doc__))

# The standard library, with a line each.
lines = repr(flin.stdlib).splitlines()
check("stdlib: a line each", [line.split()[0] for line in lines]
      == list(flin.stdlib) == flin.stdlib_names(), lines)
check("stdlib: what it is", all(len(line) > 40 for line in lines), lines)
check("stdlib: by name", flin.stdlib.gla is flin.stdlib["gla"]
      and flin.stdlib.gla.name == "gla" and "gla" in flin.stdlib
      and "gla" in dir(flin.stdlib) and len(flin.stdlib) == len(lines))
refused("stdlib: no such", AttributeError, "did you mean 'gla'", getattr,
        flin.stdlib, "glaa")

# Each variant: its signature is what a call takes, its help names all of it.
for name in flin.stdlib:
    v = flin.load(name)
    signature = inspect.signature(v)
    named = [a.name + "_" * keyword.iskeyword(a.name) for a in v.inputs]
    wanted = [p.name for p in signature.parameters.values()
              if p.default is p.empty]
    check(f"{name}: signature", set(wanted) == set(named)
          and wanted[:len(v.by_position)] == v.by_position, str(signature))
    signature.bind(**dict.fromkeys(named, 0), scale=1)
    refused(f"{name}: signature of all", TypeError, "missing",
            signature.bind)
    d, text = v.describe(), pydoc.plain(pydoc.render_doc(v))
    for a in (*d.inputs, d.output, *d.states):
        check(f"{name}: {a['name']} in help", f"  {a['name']} " in text
              and a["shape"] in text, text)
    for a, b in zip(v.inputs, d.inputs):
        shape = ["B", "T"] * a.timed + ["H", *map(str.upper, a.axes)]
        check(f"{name}: {a.name}", b["shape"] == f"[{', '.join(shape)}]"
              and b["domain"] == a.domain, b)
        if a.domain == "log_decay":
            check(f"{name}: {a.name}'s unit", "logarithm" in text, text)
    check(f"{name}: about", v.about and v.about in d.about
          and v.about.split("\n")[0] in text, text)
    check(f"{name}: form", v.form.strip() in str(d) and v.note is None)
check("the class has its own", "flash-linear-attention"
      in flin.Variant.__doc__ and "gated_deltanet" in gdn.__doc__)
check("signature of the class", "given" in str(inspect.signature(
    flin.Variant)))

# Reports: numbers as they are, and the prompt's text.
r = gdn.check(T=40, K=8, V=8)
check("check", 0 < r.worst < 1e-4 and r["worst"] == r.worst
      and "worst" in str(r) and "worst" in dir(r), r)
refused("a report's names", AttributeError, "no 'wurst'; it has", getattr, r,
        "wurst")
packed = gdn.check(cu_seqlens=[0, 5, 12], K=8, V=8, backward=False)
check("check: packed", 0 < packed.worst < 1e-4 and "d_q" not in packed)
r = gdn.gradcheck(T=10)
check("gradcheck", 0 < r.worst < 1e-3 and len(r.rows) == 6, r)
p = gdn.plan(K=128, V=128, machine="h200", backward=True)
check("plan", p.machine == "h200" and len(p.kernels) >= 2
      and p.kernels[0]["bytes"] > 0 and p.stored and p.optimal is True, p)
check("plan: text", "kernel 1" in str(p) and str(p) == p.text)
dot = gdn.plan(K=128, V=128, machine="h200", backward=True, format="dot")
check("plan: drawn", p.svg().startswith("<svg") and "<svg" in p._repr_html_()
      and dot.startswith("digraph"))
check("pickled", pickle.loads(pickle.dumps(p)) == p
      and str(pickle.loads(pickle.dumps(p))) == str(p))
check("plan: that was asked for", gdn.plan(K=16, V=16).bytes < p.bytes)
r = gdn.io(T=1000)
check("io", r.words > 0 and r.forward["compulsory"] > 0, r)
r = gdn.bench(T=16, K=8, V=8, H=1, seconds=0)
check("bench", {row["name"] for row in r.rows} >= {"token by token",
      "decode, one token"} and r.floor > 0 and "Mtok/s" in str(r), r)
check("dag", "next S" in gdn.dag() and repr(gdn.dag()) == str(gdn.dag()))
check("dag: drawn", gdn.dag().svg().startswith("<svg")
      and gdn.dag()._repr_html_() == gdn.dag().svg())
check("bench: its kernels", all(k["seconds"] > 0 and k["moved"] > 0
      for k in r.kernels) and [k["kernel"] for k in r.kernels
      if k["call"] == "forward + backward"] == [1, 2], r.kernels)
check("bench: drawn", r.svg().startswith("<svg")
      and "2 backward" in r._repr_html_())
check("graph", gdn.graph().startswith("#") and "next S" in gdn.graph())
check("dump", "chunk form" in gdn.dump("C", K=16, V=16))
text = gdn.source("cuda", K=64, V=64, arch="sm_80")
check("source", "__global__" in text and text != gdn.source("cuda"))
m = gdn.mask(T=5)
check("mask", len(m.rows) == 5 and m.rows[0][1] == 0 != m.rows[1][0]
      and len(str(m).splitlines()) == 5, m)
check("mask: drawn", "<svg" in m._repr_html_() and m.svg() != gdn.mask(
    T=5, log=True, title="mine").svg() and "mine" in gdn.mask(
    T=5, title="mine").svg())
given = gdn.mask(T=3, beta=[[[1], [2], [0.5]]])
check("mask: an input by name", [given.rows[i][i] for i in range(3)]
      == [1, 2, 0.5], given.rows)
if importlib.util.find_spec("numpy"):
    import numpy
    m = gdn.mask(T=3, beta=numpy.array([1., 2., 0.5]).reshape(1, 3, 1))
    check("mask: arrays", (numpy.asarray(m) == given.rows).all())
if importlib.util.find_spec("matplotlib"):
    import matplotlib
    matplotlib.use("agg")
    import matplotlib.pyplot as plt
    image = gdn.mask(T=5).plot(cmap="magma")
    check("mask: matplotlib", image.get_array().shape == (5, 5))
    dots = r.plot(plt.figure().gca())
    check("bench: matplotlib", len(dots) == len(r.kernels))
    check("plan: matplotlib", len(p.plot(plt.figure().gca())) == len(p.kernels))
check("html", "<table>" in gdn._repr_html_() and "<table>"
      in flin.stdlib._repr_html_())

# What does not run in chunks says so; what is odd is refused in the user's
# words, not in those of a script that they have not written.
serial = flin.load('''-- Saturates.
local flin = require "flin"
return flin.variant { name = "odd<b>", input = { x = "t k" },
  state = { S = "k" }, step = function (x, s)
    local S = flin.tanh(s.S + x.x)
    return { S = S }, S
  end }
''')
check("note: of no call", serial.note is None
      and "tanh" in serial.plan(K=8).note)
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    serial.check(K=8, T=5)
check("note", serial.note == serial.plan(K=8).note, serial.note)
check("note: said", any("token by token" in str(w.message) for w in said))
check("about", serial.about == "Saturates.", serial.about)
check("html is escaped", "<b>" not in serial._repr_html_().replace(
    "<p><b>", "") and "odd&lt;b&gt;" in serial._repr_html_())
for name, f, text, named in (
        ("plan", gdn.plan, "plan: there is no machine 'x'",
         {"machine": "x"}),
        ("check", gdn.check, "check: there is no option 'Q'", {"Q": 3}),
        ("a kind", gdn.check, "T is dict: a number, a text, a list",
         {"T": {}}),
        ("a text that is none", gdn.plan, "no machine 'a\"}\\'",
         {"machine": 'a"}\\'}),
        ("infinite", gdn.bench, "T = inf", {"T": float("inf")})):
    try:
        f(**named)
    except flin.Error as e:
        check(name, str(e).startswith(text) or text in str(e)
              and "flin.python" not in str(e) and e.line == 0, e)
    else:
        check(name, False, "accepted")
refused("mask: no q", flin.Error, "has no input q", serial.mask)
end()
