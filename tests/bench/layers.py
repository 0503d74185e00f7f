"""Layers on a GPU beside flash-linear-attention's modules, weights the same:
milliseconds of forward, and of forward and backward, as calls and (flin's) as
a CUDA graph; the memory that a step of training takes above its weights; how
far outputs and gradients are from one another.

    python3 tests/bench/layers.py [NAMES [d=2048,1024 T=2048,4096,8192 B=1
                                         plan=separate,fused,cheapest peer=1
                                         ours=1 kernels=0 warm=0]]

NAMES with commas, or all; of several, or several d, each is a process: they
compile and tune side by side, and are timed one after another. Heads have 128
channels (heads=N: N of them). plan: one row each; the cheapest alone otherwise;
a number: in pieces that take at most this share of the peer's memory.
The last rows say by how much flin's are faster than the peer's, as graphs, and
which share of its memory they take.
fla is what is installed, or peers/fla_src (mamba_ssm: peers/mamba_src); where
there is none, or peer=0, flin is measured alone, and with ours=0 fla. Each row
says what its plan predicts, too. kernels: so many of those that take longest,
forward and backward, with how often each is launched and microseconds in all.
The first calls compile, and tune fla's kernels for minutes: warm=1 makes them
and no other, and tuning.py keeps what was chosen.

fla refuses gated gradients on Hopper with Triton 3.4 to 3.7.0, which come out
wrong there: they are computed none the less, for their time. Its Mamba-2's
convolutions are fla's own kernels where causal_conv1d is not installed."""
import logging
import math
import os
import subprocess
import sys
import tempfile
import time
import types

import torch

import tuning
from timing import median, recorded, turn

import tree                                         # noqa: F401
import flin
from flin import _fla

NAMES = "gla", "gated_deltanet", "kda", "mamba2", "rwkv7"
SIZES = {"d": 2048, "heads": 0, "T": "2048,8192", "B": 1,
         "plan": "cheapest", "peer": 1, "ours": 1, "kernels": 0, "warm": 0}
PEERS = os.path.normpath(os.path.join(
    os.path.dirname(os.path.abspath(__file__)), "../../peers"))


def sizes_of(name, d, h):
    """Of the layer's axes, as the peer's defaults have them."""
    k = d // h
    return {"gla": {"k": k // 2, "v": k, "r": 16},
            "gated_deltanet": {"k": k, "v": k},
            "kda": {"k": k, "v": k, "r": k, "s": k},
            "mamba2": {"k": 128, "v": 64},
            "rwkv7": {"k": k, "v": k, "e": 64, "f": 64, "g": 128}}[name]


def module(name, **what):
    found = sys.modules[name] = types.ModuleType(name)
    vars(found).update(what)


def stand_in():
    """What the import of fla.layers wants of transformers, which takes long to
    start: a logger, and that weights are not begun with, as ours come. Of
    mamba_ssm the kernels alone, as the rest wants what nvcc compiles."""
    sys.path.append(os.path.join(PEERS, "fla_src"))
    for name in "mamba_ssm", "mamba_ssm.ops":
        path = os.path.join(PEERS, "mamba_src", *name.split("."))
        if os.path.isdir(path):
            module(name, __path__=[path], __version__="")

    def logger(name=None):
        found = logging.getLogger(name)
        found.warning_once = lambda text: None
        return found
    module("fla.models", __all__=[])    # which want all of it
    module("transformers", __path__=[])
    module("transformers.utils",
           logging=types.SimpleNamespace(get_logger=logger))
    module("transformers.activations", ACT2FN={})
    module("transformers.modeling_utils", _init_weights=False)


def taps_by_fla():
    """For Mamba-2's fused function what causal_conv1d would be, where it is
    not installed: [b, d, t] there, [b, t, d] in fla."""
    from fla.modules.conv.triton.ops import causal_conv1d_bwd, causal_conv1d_fwd
    from mamba_ssm.ops.triton import ssd_combined

    def act(is_silu):
        return "silu" if is_silu else None

    def forward(x, w, b, index, first, last, silu):
        return causal_conv1d_fwd(x.mT, w, b, None,
                                 activation=act(silu))[0].mT

    def backward(x, w, b, dy, index, first, last, dx, more, silu):
        dx, dw, db, *_ = causal_conv1d_bwd(x.mT, dy.mT, None, w, b,
                                           activation=act(silu))
        return dx.mT, dw, db
    if ssd_combined.causal_conv1d_fwd_function is None:
        ssd_combined.causal_conv1d_fwd_function = forward
        ssd_combined.causal_conv1d_bwd_function = backward


def peer_of(name, d, h):
    """The module of flash-linear-attention; None: there is none here."""
    if "transformers" not in sys.modules:
        stand_in()
    try:
        from fla import layers
        import fla.ops.common.chunk_o as gated
    except ImportError as e:
        print(f"no peer: {e}")
        return None
    tuning.begin()
    gated.TRITON_ABOVE_3_7_1 = True
    if name == "mamba2":
        taps_by_fla()
    k = d // h
    make = {
        "gla": lambda: layers.GatedLinearAttention(
            hidden_size=d, num_heads=h, expand_k=0.5, expand_v=1.),
        "gated_deltanet": lambda: layers.GatedDeltaNet(
            hidden_size=d, num_heads=h, head_dim=k, expand_v=1.),
        "kda": lambda: layers.KimiDeltaAttention(
            hidden_size=d, num_heads=h, head_dim=k),
        "mamba2": lambda: layers.Mamba2(
            hidden_size=d, num_heads=2 * d // 64, head_dim=64, state_size=128,
            expand=2, n_groups=1),
        "rwkv7": lambda: layers.RWKV7Attention(
            hidden_size=d, num_heads=h, head_dim=k, layer_idx=0,
            decay_low_rank_dim=64, a_low_rank_dim=64, gate_low_rank_dim=128)}
    return make[name]().cuda().bfloat16()


def result(module, x):
    y = module(x)
    return y[0] if isinstance(y, tuple) else y


def forward_and_back(module, x, dy):
    module.zero_grad(set_to_none=True)
    x.grad = None
    result(module, x).backward(dy)


def room_of(module, x, dy):
    """Bytes that a step takes above weights and gradients."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    forward_and_back(module, x, dy)
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def expect_finite(who, when, **tensors):
    """Says whose results are no numbers, and since when: apart() would only
    say that one side's are not."""
    for name, t in tensors.items():
        bad = int((~torch.isfinite(t)).sum())
        if bad:
            print(f"FAIL {who}: {bad} of {t.numel()} of {name} are not finite, "
                  f"{when}", flush=True)


def measure(who, module, x, dy):
    """ms forward, forward and backward; bytes; y and dx."""
    def forward():
        with torch.no_grad():
            return result(module, x)

    def both():
        forward_and_back(module, x, dy)
    expect_finite(who, "called once", y=forward())
    both()
    expect_finite(who, "called once", dx=x.grad)
    room = room_of(module, x, dy)
    times = median(forward), median(both)
    y, dx = forward(), x.grad.clone()
    expect_finite(who, "after all calls", y=y, dx=dx)
    return *times, room, y, dx


def show_kernels(what, module, x, dy, n):
    """The n kernels that take longest, of forward and backward."""
    times = 5
    if not n:
        return
    with torch.profiler.profile(
            activities=[torch.profiler.ProfilerActivity.CUDA]) as p:
        for _ in range(times):
            result(module, x).backward(dy)
        torch.cuda.synchronize()
    every = sorted(p.key_averages(), key=lambda e: -e.device_time_total)
    for e in every[:n]:
        print(f"{what}: {e.device_time_total / times:8.1f} us "
              f"{e.count / times:4.0f} x {e.key[:60]}", flush=True)


def apart(a, b):
    a, b = a.double(), b.double()
    return float((a - b).norm() / b.norm())


def weights_apart(layer, peer, x, dy):
    """Of the gradients of the weights that is furthest off: how far, and the
    peer's name of it."""
    for module in layer, peer:
        module.zero_grad(set_to_none=True)
        result(module, x).backward(dy)
    grads = {n: p.grad for n, p in layer.weights.items()}
    theirs = dict(peer.named_parameters())
    return max((apart(g, theirs[n].grad), n) for n, g in _fla.dump(
        layer.layer.name, grads).items())


def graph_of(module, x, dy):
    """Milliseconds of forward and backward as a CUDA graph; NaN: none."""
    leaves = [x, *module.parameters()]
    try:
        return recorded(lambda: torch.autograd.grad(result(module, x), leaves,
                                                    dy))
    except RuntimeError as e:
        print(f"no graph: {e}"[:200])
        return math.nan


def layer_of(name, plan, d, h, heads, memory=None):
    source = (f"local flin = require 'flin'\nreturn flin.layers.{name} -- "
              f"{plan} {memory}\n")
    return flin.nn.Layer(
        flin.load(source, None if plan == "cheapest" else plan, memory=memory),
        d=d, heads=h, **sizes_of(name, d, heads), device="cuda",
        dtype=torch.bfloat16)


def layers_of(name, plans, d, h, heads):
    """One of each plan, with the same weights."""
    found = {plan: layer_of(name, plan, d, h, heads) for plan in plans}
    first = found[plans[0]]
    with torch.no_grad():               # what begins as zeros would hide more
        for p in first.parameters():
            if not p.any():
                p.normal_(0, 0.02)
    for layer in found.values():
        layer.load_state_dict(first.state_dict())
        layer.lay_beside()
    return found


def predicted(layer, plan, x):
    """What its plan says, in words."""
    asked = {} if plan == "cheapest" else {"plan": plan}
    planned = layer.layer.plan(B=x.shape[0], T=x.shape[1], machine="h200",
                               **layer.sizes, **asked)
    return (f"predicted {planned['predicted'] * 1e3:.3f}, "
            f"{len(planned['parts'])} parts")


def measure_ours(what, layer, plan, x, dy, words):
    ours = measure(f"{what}: flin, {plan}", layer, x, dy)
    with torch.no_grad():
        graph = recorded(lambda: layer(x)[0])
    back = graph_of(layer, x, dy)
    expect_finite(f"{what}: flin, {plan}", "behind graphs", y=ours[3],
                  dx=ours[4])
    print(f"{what}: flin, {plan} {ours[0]:.3f} ms, graph {graph:.3f} "
          f"({words}), both ways {ours[1]:.3f} ms, graph {back:.3f}, "
          f"{ours[2] / 2**20:.0f} MiB", flush=True)
    return ours + (back,)


def warm_call(who, module, x, dy):
    """A call of forward alone, and one of both."""
    begun = time.monotonic()
    with torch.no_grad():
        result(module, x)
    forward_and_back(module, x, dy)
    torch.cuda.synchronize()
    took = time.monotonic() - begun
    print(f"warm: {who} {took:.1f} s, "
          f"{room_of(module, x, dy) / 2**20:.0f} MiB", flush=True)


def beside(what, layer, peer, rows, x, dy):
    """The row of the peer; rows: by plan, what was measured of flin's layer."""
    theirs = measure(f"{what}: peer", peer, x, dy)
    graph, ours = graph_of(peer, x, dy), next(iter(rows.values()), None)
    row = (f"{what}: peer {theirs[0]:.3f} ms, both ways {theirs[1]:.3f} ms, "
           f"graph {graph:.3f}, {theirs[2] / 2**20:.0f} MiB")
    if ours:
        off, which = weights_apart(layer, peer, x, dy)
        row += (f"; y {apart(ours[3], theirs[3]):.1e}, dx "
                f"{apart(ours[4], theirs[4]):.1e} and {which} {off:.1e} apart")
    print(row, flush=True)
    for plan, r in rows.items():
        print(f"{what}: {plan} {graph / r[5]:.2f}x ({theirs[1] / r[1]:.2f}x as "
              f"calls) and {r[2] / theirs[2]:.3f} of the memory", flush=True)


def time_all(what, modules, peer, x, dy, words):
    """modules: flin's, by plan; words: what is predicted of those that are
    timed."""
    rows = {plan: measure_ours(what, modules[plan], plan, x, dy, text)
            for plan, text in words.items()}
    first = next(iter(rows.values()), None)
    for plan, r in list(rows.items())[1:]:
        print(f"{what}: {plan}: y {apart(r[3], first[3]):.1e} and dx "
              f"{apart(r[4], first[4]):.1e} apart", flush=True)
    if peer is not None:
        beside(what, next(iter(modules.values())), peer, rows, x, dy)


def within(name, first, d, h, heads, memory):
    """first's twin, in pieces that take so many bytes at most."""
    layer = layer_of(name, "pieces", d, h, heads, memory)
    layer.load_state_dict(first.state_dict())
    layer.lay_beside()
    return layer


def inputs(o, d, tokens):
    """x and dy."""
    x = torch.randn(int(o["B"]), tokens, d, device="cuda",
                    dtype=torch.bfloat16)
    return x.requires_grad_(), torch.randn_like(x)


def main_of(name, o):
    d, asked = int(o["d"]), o["plan"].split(",")
    shares = [p for p in asked if not p.isidentifier()]
    plans = [p for p in asked if p not in shares] or ["cheapest"]
    heads = int(o["heads"]) or d // 128
    h = 2 * d // 64 if name == "mamba2" else heads
    layers = layers_of(name, plans, d, h, heads)
    peer = peer_of(name, d, heads) if int(o["peer"]) else None
    if peer is not None:
        peer.load_state_dict(layers[plans[0]].fla_state_dict())
    timed = layers if int(o["ours"]) else {}
    modules = {**timed, **({} if peer is None else {"peer": peer})}
    every = [int(t) for t in str(o["T"]).split(",")]
    for tokens in every if int(o["warm"]) or "FLIN_TURN" in os.environ else []:
        for who, module in modules.items():
            warm_call(f"{name} d {d} T {tokens} {who}", module,
                      *inputs(o, d, tokens))
    for tokens in [] if int(o["warm"]) else every:
        x, dy = inputs(o, d, tokens)
        what = f"{name} d {d} B {o['B']} T {tokens}"
        all_of = dict(layers)
        words = {plan: predicted(m, plan, x) for plan, m in timed.items()}
        for share in shares:
            forward_and_back(peer, x, dy)
            room = int(float(share) * room_of(peer, x, dy))
            all_of[share] = within(name, layers[plans[0]], d, h, heads, room)
            warm_call(f"{what} {share}", all_of[share], x, dy)
            words[share] = f"of {room / 2**20:.0f} MiB"
        with turn():
            time_all(what, all_of, peer, x, dy, words)
            for who, module in modules.items():
                show_kernels(f"{what} {who}", module, x, dy,
                             int(o["kernels"]))


def side_by_side(cases, o):
    """A process for each (name, d)."""
    with tempfile.TemporaryDirectory() as at:
        env = {"OMP_NUM_THREADS": "2", **os.environ,
               "FLIN_TURN": os.path.join(at, "turn")}
        pending = [subprocess.Popen(
            [sys.executable, __file__, name]
            + [f"{k}={v}" for k, v in {**o, "d": d}.items()], env=env)
            for name, d in cases]
        return max(p.wait() for p in pending)


def main(names, o):
    cases = [(n, d) for d in str(o["d"]).split(",") for n in names]
    if len(cases) > 1:
        sys.exit(side_by_side(cases, o))
    try:
        main_of(names[0], o)
    except (RuntimeError, flin.Error) as e:
        print(f"{names[0]}: {type(e).__name__}: {e}"[:300], flush=True)


if __name__ == "__main__":
    given = [a for a in sys.argv[1:] if "=" not in a]
    more = dict(a.split("=") for a in sys.argv[1:] if "=" in a)
    main(NAMES if not given or given[0] == "all" else given[0].split(","),
         {**SIZES, **more})
