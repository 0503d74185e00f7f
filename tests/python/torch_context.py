"""A sequence whose parts lie on ranks, each variant's: three processes, the
results and gradients of one. Packed sequences cut anywhere, states in a ring or
gathered, parts in pieces, whole layers, a rank that dies. With --nccl two
processes, each on its GPU: in float32, and in bfloat16 at K = V = 64, held to
float32 on the CPU and to one GPU alone.

    python3 tests/python/torch_context.py [--nccl] [PARTS] [VARIANTS]

these alone: of all_variants, several, pieces, packed, layers, halves, refusals,
sums, prices, reloading, cards, dying; and of the standard library."""
import importlib.util
import json
import os
import sys
import tempfile
import time
from datetime import timedelta

import harness
from harness import (CARDS, backend, check, close, drawn, end, flin, here,
                     refused, shapes)

if not importlib.util.find_spec("torch"):
    print("skip no PyTorch for", sys.executable)
    sys.exit()
import torch                                        # noqa: E402
import torch.distributed as dist                    # noqa: E402
import torch.multiprocessing as processes           # noqa: E402

from flin._line import gather_price, ring_price     # noqa: E402
from flin.distributed import context_parallel, measure  # noqa: E402

RANKS = 2 if CARDS else 3
# of the ranks' parts
ENDS = (0, 70, 100) if CARDS else (0, 70, 75, 100)
EVEN = tuple(9 * i for i in range(RANKS + 1))
UNEVEN = (0, 12, 18) if CARDS else (0, 12, 14, 27)
ALL = EVEN[-1]
LONG = 155 * RANKS              # with pieces
# of packed sequences: over all ranks, cut at a rank's end, some in one rank,
# one empty at a cut, one of a single token
PACKED = [0, ALL], [0, 4, ALL - 9, ALL], [0, 2, 3, 8, ALL - 7, ALL], [
    0, 9, 9, 10, ALL, ALL]
PARTS = ("all_variants", "several", "pieces", "packed", "layers", "halves",
         "refusals", "sums", "prices", "reloading", "cards", "dying")
WORDS = [w for w in sys.argv[1:] if w != "--nccl"]
NAMES = [n for n in flin.stdlib if n in WORDS] or list(flin.stdlib)


def inputs(variant, B=2, T=ENDS[-1]):
    torch.manual_seed(3)
    return {n: drawn(shape, domain, slow=16)
            .requires_grad_() for n, (shape, domain)
            in shapes(variant, B, T, 2).items()}


def listed(states):
    return list(states.values()) if isinstance(states, dict) else [states]


def like(states, tensors):
    return dict(zip(states, tensors)) if isinstance(states, dict) \
        else tensors[0]


def weights(y, states):
    torch.manual_seed(5)
    return torch.randn(y.shape), [torch.randn(s.shape) for s in listed(states)]


def weighed(y, states, w, u):
    return (w * y).sum() + sum((a * s).sum() for a, s in
                               zip(u, listed(states)))


class Whole:
    """y, states and gradients of the whole, by one process."""

    def __init__(self, v, cu=None, T=ENDS[-1], x=None):
        self.cu = cu
        self.x = x or inputs(v, 1 if cu else 2, T)
        _, s = v(**self.x, output_final_state=True, cu_seqlens=cu)
        first = [t.detach().clone().requires_grad_() for t in listed(s)]
        y, states = v(**self.x, initial_state=like(s, first),
                      output_final_state=True, cu_seqlens=cu)
        self.w, self.u = weights(y, states)
        weighed(y, states, self.w, self.u).backward()
        self.y, self.states = y.detach(), [t.detach() for t in listed(states)]
        self.first, self.like = first, s
        self.grads = {n: t.grad for n, t in self.x.items()}
        self.dfirst = [t.grad for t in first]


def part(t, rank, ends):
    return t[:, ends[rank]:ends[rank + 1]]


def angles(v):
    return [s.domain == "angle" for s in v.states]


def ends_here(cu, states, rank, ranks, ends):
    """Of which sequences the states behind them are this rank's."""
    ended = torch.ones(len(states[0]), dtype=torch.bool)
    if not cu:
        return ended if rank + 1 == ranks else ~ended
    at, before = torch.tensor(cu[1:]), torch.tensor(cu[:-1])
    ended = (at > ends[rank]) & (at <= ends[rank + 1])
    if rank + 1 < ranks:                # empty ones begin, and end, behind
        ended &= ~((at == before) & (at == ends[rank + 1]))
    return ended | ((at == before) & (at == ends[rank]))


def own(t):
    """A leaf, on this rank."""
    return here(t.detach()).clone().requires_grad_()


def run_one(name, whole, cut, rank, ranks, ends):
    """All of a variant's results on this rank."""
    v, cu = cut.variant, whole.cu
    timed = {a.name: a.timed for a in v.inputs}
    mine = {n: own(part(t, rank, ends) if timed[n] else t)
            for n, t in whole.x.items()}
    first = [own(t) for t in whole.first]
    more = {"cu_seqlens": cu} if cu else {}
    if cu and ends is not EVEN:
        more["lengths"] = [b - a for a, b in zip(ends, ends[1:])]
    begin = like(whole.like, first)
    with torch.no_grad():
        alone, none = cut(**mine, initial_state=begin, **more)
    y, left = cut(**mine, initial_state=begin, output_final_state=True, **more)
    close(f"{name}: y", y, part(whole.y, rank, ends), 2e-5)
    check(f"{name}: no state is asked for", none is None)
    close(f"{name}: without gradients", alone, y, 2e-6)
    ended = ends_here(cu, whole.states, rank, ranks, ends)
    for s, a, t, turns in zip(v.states, listed(left), whole.states, angles(v)):
        a, t = (a.cpu().cos(), t.cos()) if turns else (a.cpu(), t)
        if ended.any():
            close(f"{name}: state {s.name}", a[ended], t[ended], 2e-5)
    total = (here(part(whole.w, rank, ends)) * y).sum()
    for u, s in zip(whole.u, listed(left)):
        total = total + (here(u[ended]) * s[here(ended)]).sum()
    total.backward()
    for n, t in mine.items():
        want = whole.grads[n]
        if timed[n]:
            close(f"{name}: d_{n}", t.grad, part(want, rank, ends), 1e-4)
        else:                       # each rank has a part of the sum
            dist.all_reduce(t.grad)
            close(f"{name}: d_{n}", t.grad, want, 1e-4)
    for s, t, want in zip(v.states, first, whole.dfirst):
        dist.all_reduce(t.grad)
        close(f"{name}: d_initial {s.name}", t.grad, want, 1e-4)


def seen(rank, name):
    """On GPUs kernels are compiled for minutes: how far it has come."""
    if CARDS and rank == 0:
        print(f"{name}: {harness.passed} passed, {harness.failed} failed",
              flush=True)


def all_variants(rank, ranks, folder):
    for name, whole in WANTED.items():
        v = flin.stdlib[name]
        for by in "gather", "ring":
            run_one(f"{name} by {by}", whole, context_parallel(v, by=by), rank,
                    ranks, ENDS)
        seen(rank, name)


def pieces(rank, ranks, folder):
    """Parts that are cut once more: 2 or 3 pieces, the last one shorter."""
    for (name, n), whole in WANTED_PIECES.items():
        cut = context_parallel(flin.stdlib[name], pieces=n,
                               by="ring" if n == 2 else "gather")
        run_one(f"{name} in {n} pieces", whole, cut, rank, ranks,
                tuple(LONG // RANKS * i for i in range(RANKS + 1)))


# ---- several results ----

ERRORS = """local flin = require "flin"
local exp, dot, outer = flin.exp, flin.dot, flin.outer
return flin.variant {
  name  = "errors",
  input = { q = "t k", k = "t k : unit_norm", v = "t v", g = "t : log_decay",
            beta = "t : unit" },
  state = { S = "k v" },
  step  = function (x, s)
    local S = exp(x.g) * s.S
    local e = x.v - dot(x.k, S)
    S = S + outer(x.beta * x.k, e)
    return { S = S }, { y = dot(x.q, S), err = e, loss = dot(e, e) }
  end,
}
"""


class Side:
    """The results side by side, as one."""

    def __init__(self, v, call):
        self.variant, self.inputs, self.states = v, v.inputs, v.states
        self.call, self.sizes = call, v.sizes

    def __call__(self, **named):
        r, left = self.call(**named)
        return torch.cat([r.y, r.err, r.loss.unsqueeze(-1)], -1), left


def several(rank, ranks, folder):
    v = flin.load(ERRORS)
    for whole, ends in WANTED_SEVERAL:
        for by in "gather", "ring":
            run_one(f"several results by {by}", whole,
                    Side(v, context_parallel(v, by=by)), rank, ranks, ends)


# ---- in bfloat16, on GPUs ----

WIDE = 0, 160, 320


def is_half(a):
    """Gates and numbers a token stay in float32."""
    return a.timed and a.domain in ("normal", "unit_norm") \
        and not {"k", "v"}.isdisjoint(a.axes)


def wide(v):
    """K = V = 64, of numbers that bfloat16 has."""
    usual = dict(harness.SIZES)
    harness.SIZES.update(k=64, v=64, p=32, m=64)
    x = inputs(v, 1, WIDE[-1])
    harness.SIZES.update(usual)
    return {a.name: x[a.name].detach().bfloat16().float().requires_grad_()
            for a in v.inputs}


def results(v, whole, rank, f=None):
    """y, states and gradients, by name, of this rank's part by f, or of all."""
    timed = {a.name: a.timed for a in v.inputs}

    def mine(t):
        return part(t, rank, WIDE) if f else t
    x = {a.name: own((mine(whole.x[a.name]) if a.timed else whole.x[a.name])
                     .to(torch.bfloat16 if is_half(a) else torch.float32))
         for a in v.inputs}
    first = [own(t) for t in whole.first]
    y, left = (f or v)(**x, initial_state=like(whole.like, first),
                       output_final_state=True)
    total = (here(mine(whole.w)) * y).sum()
    if not f or rank + 1 == len(WIDE) - 1:
        total = total + sum((here(u) * s).sum()
                            for u, s in zip(whole.u, listed(left)))
    total.backward()
    found = {"y": y.detach()}
    for s, t in zip(v.states, listed(left)):
        if not f or rank + 1 == len(WIDE) - 1:
            found["state " + s.name] = t.detach().cos() \
                if s.domain == "angle" else t.detach()
    for n, t in x.items():
        g = t.grad.float()
        if f and not timed[n]:
            dist.all_reduce(g)
        found["d_" + n] = g if f or not timed[n] else part(g, rank, WIDE)
    for s, t in zip(v.states, first):
        if f:
            dist.all_reduce(t.grad)
        found["d_initial " + s.name] = t.grad
    if not f:
        found["y"] = part(found["y"], rank, WIDE)
    return {n: t.float().cpu() for n, t in found.items()}


def exact(v, whole, rank):
    found = {"y": part(whole.y, rank, WIDE)}
    for s, t, d in zip(v.states, whole.states, whole.dfirst):
        found["state " + s.name] = t.cos() if s.domain == "angle" else t
        found["d_initial " + s.name] = d
    for a in v.inputs:
        g = whole.grads[a.name]
        found["d_" + a.name] = part(g, rank, WIDE) if a.timed else g
    return found


def limit_of(v, name):
    """The laws' limits on a GPU (tests/cuda/laws.lua)."""
    if not name.startswith("d_"):
        return 6e-3
    a = next((a for a in v.inputs if name == "d_" + a.name), None)
    if a is None:
        return 2e-2
    return 3e-2 if not a.timed else 8e-3 if is_half(a) else 2e-2


def off(a, b):
    return float((a - b).norm() / (b.norm() + 1e-30))


def cards(rank, ranks, folder):
    """Within the laws' limits, or no farther off than one GPU by half."""
    for name, whole in WANTED_WIDE.items():
        v = flin.stdlib[name]
        want, alone = exact(v, whole, rank), results(v, whole, rank)
        for by, n in ("gather", None), ("ring", 2):
            cut = context_parallel(v, by=by, pieces=n)
            for n, t in results(v, whole, rank, cut).items():
                far, one = off(t, want[n]), off(alone[n], want[n])
                check(f"bfloat16, {name} by {by}: {n}",
                      far <= max(limit_of(v, n), 1.5 * one),
                      f"{far:.1e} off, one GPU {one:.1e}")
        seen(rank, "bfloat16, " + name)


def packed(rank, ranks, folder):
    for (name, i), whole in WANTED_PACKED.items():
        cut = context_parallel(flin.stdlib[name], by="ring" if i % 2
                               else "gather")
        run_one(f"{name}, sequences {PACKED[i]}", whole, cut, rank, ranks,
                (0, 11, 16)[:RANKS] + (ALL,) if i == 2 else EVEN)


# ---- layers ----

# Two mixing rules, one after the other; the token before, and a convolution of
# what is mixed.
TWO = """local flin = require "flin"
local dot, silu = flin.dot, flin.silu
return flin.layer {
  name   = "two",
  input  = { x = "t d" },
  weight = { Wq = "d h k", Wk = "d h k", Wv = "d h v", Wg = "d h",
             c = "h v w", Wi = "d h", Wf = "d h", norm = "v", m = "d",
             Wo = "h v d" },
  forward = function (x, w)
    local z = x.x + (flin.prev(x.x) - x.x) * w.m
    local q, k = dot(z, w.Wq), dot(z, w.Wk)
    local y = flin.stdlib.simple_gla { q = q, k = k, v = dot(z, w.Wv),
      g = flin.logsigmoid(dot(z, w.Wg)) }
    y = silu(flin.conv(y, w.c))
    y = flin.stdlib.mlstm { q = q, k = k, v = y, i = dot(z, w.Wi),
                            f = dot(z, w.Wf) }
    return dot(flin.rms_norm(y, "v") * w.norm, w.Wo) + x.x
  end,
}"""
MODULES = {
    **{n: lambda n=n, **more: flin.nn.Layer(n, d=8, heads=2, k=4, v=6, **{
        "gla": {"r": 3}, "kda": {"r": 3, "s": 3},
        "rwkv7": {"e": 3, "f": 3, "g": 3}}.get(n, {}), **more)
       for n in ("gated_deltanet", "gla", "kda", "mamba2", "rwkv7")},
    "two": lambda **more: flin.nn.Layer(TWO, d=8, heads=2, k=4, v=6, w=3,
                                        **more),
    "mixer": lambda **more: flin.nn.LinearAttention(8, "mamba3", num_heads=2,
                                                    **more),
}


def module(name, **more):
    torch.manual_seed(11)
    found = MODULES[name](**more)
    with torch.no_grad():               # what begins as zero hides things
        for p in found.parameters():
            p.add_(0.3 * torch.randn(p.shape))
    return found


class WholeModule:
    def __init__(self, name, cu=None, T=ALL):
        self.cu, self.cut = cu, name
        m = module(name)
        torch.manual_seed(3)
        self.x = torch.randn(1 if cu else 2, T, 8, requires_grad=True)
        _, s = m(self.x, use_cache=True, cu_seqlens=cu)
        self.first = [t.detach().clone().requires_grad_() for t in listed(s)]
        self.like = s
        y, states = m(self.x, state=like(s, self.first), use_cache=True,
                      cu_seqlens=cu)
        self.w, self.u = weights(y, states)
        weighed(y, states, self.w, self.u).backward()
        self.y, self.states = y.detach(), [t.detach() for t in listed(states)]
        self.grads = {n: p.grad for n, p in m.named_parameters()}
        self.dx, self.dfirst = self.x.grad, [t.grad for t in self.first]


def run_module(name, whole, rank, ranks, ends, **more):
    m, cu = here(module(whole.cut, cp_group=dist.group.WORLD, **more)), \
        whole.cu
    x, first = own(part(whole.x, rank, ends)), [own(t) for t in whole.first]
    lengths = [b - a for a, b in zip(ends, ends[1:])]
    y, left = m(x, state=like(whole.like, first), use_cache=True,
                cu_seqlens=cu, lengths=lengths)
    close(f"{name}: y", y, part(whole.y, rank, ends), 2e-5)
    ended = ends_here(cu, whole.states, rank, ranks, ends)
    total = (here(part(whole.w, rank, ends)) * y).sum()
    for i, (a, t, u) in enumerate(zip(listed(left), whole.states, whole.u)):
        turns = isinstance(whole.like, dict) and "phi" in list(whole.like)[i]
        if ended.any() and not turns:
            close(f"{name}: state {i}", a[here(ended)], t[ended], 2e-5)
        total = total + (here(u[ended]) * a[here(ended)]).sum()
    total.backward()
    close(f"{name}: d_x", x.grad, part(whole.dx, rank, ends), 1e-4)
    for n, p in m.named_parameters():
        dist.all_reduce(p.grad)
        close(f"{name}: d_{n}", p.grad, whole.grads[n], 1e-4)
    for i, (t, want) in enumerate(zip(first, whole.dfirst)):
        dist.all_reduce(t.grad)
        off = float((t.grad.cpu() - want).norm())   # 1e-6: of sums that cancel
        check(f"{name}: d_initial {i}", off <= 1e-4 * want.norm() + 1e-6, off)


def layers(rank, ranks, folder):
    for (name, i), whole in WANTED_MODULES.items():
        ends = (EVEN, UNEVEN)[i > 0]
        more = {"checkpoint": True} if name == "gla" else {}
        run_module(f"layer {name} {whole.cu or ''}", whole, rank, ranks, ends,
                   **more)


class Halves:
    """A layer whose numbers bfloat16 has, in float32."""

    def __init__(self):
        m = module("gated_deltanet").bfloat16().float()
        self.x = torch.randn(2, 96, 8).bfloat16().float().requires_grad_()
        self.w = torch.randn(self.x.shape)
        y, _ = m(self.x)
        (self.w * y).sum().backward()
        self.y = y.detach()
        self.grads = {n: p.grad for n, p in m.named_parameters()}


def halves(rank, ranks, folder):
    """In bfloat16 parts keep what is a number a head in float32, as layers do
    on a GPU: with gates in bfloat16 the gradients of theirs are 6e-2 off.
    Those of keys are as far off as a key that is nearly zero makes them."""
    whole, ends = WANTED_HALVES, range(0, 97, 96 // RANKS)
    m = here(module("gated_deltanet", cp_group=dist.group.WORLD).bfloat16())
    x = own(part(whole.x, rank, ends).bfloat16())
    y, _ = m(x)
    close("bfloat16: y", y.float(), part(whole.y, rank, ends), 5e-2)
    (here(part(whole.w, rank, ends)) * y).sum().backward()
    for n, p in m.named_parameters():
        total = p.grad.float()
        dist.all_reduce(total)
        if n.partition(".")[2] in ("A_log", "dt", "Wa", "Wb"):
            close(f"bfloat16: d_{n}", total, whole.grads[n], 4e-2)


# ---- what is refused, what it costs, ranks that die ----

NONLINEAR = """local flin = require "flin"
return flin.variant {
  name  = "squashed",
  input = { q = "t k", k = "t k", v = "t v" },
  state = { S = "k v" },
  step  = function (x, s)
    local S = flin.tanh(s.S) + flin.outer(x.k, x.v)
    return { S = S }, flin.dot(x.q, S)
  end,
}"""


def refusals(rank, ranks, folder):
    gla = context_parallel(flin.stdlib["gla"])
    x = {n: own(t[:, :9]).detach() for n, t in inputs(flin.stdlib["gla"],
                                                      1).items()}
    refused("a state that is not linear", flin.Error,
            "squashed has no stages: text:7: tanh(S) is not linear in S",
            context_parallel, flin.load(NONLINEAR))
    refused("a way that is none", flin.Error, "\"ring\", \"gather\"",
            context_parallel, flin.stdlib["gla"], by="star")
    refused("ends of a part", flin.Error, f"the ranks have {ALL} tokens", gla,
            **x, cu_seqlens=[0, 9])
    refused("lengths that are not", flin.Error, "has 9 tokens", gla, **x,
            cu_seqlens=[0, ALL], lengths=[8] * RANKS)
    m = here(module("gla", cp_group=dist.group.WORLD))
    m.weights["Wq"].main_grad = torch.zeros_like(m.weights["Wq"])
    refused("a main_grad alone", flin.Error, "has no main_grad", m,
            here(torch.randn(1, 9, 8)))


def sums(rank, ranks, folder):
    """Gradients go to each weight's main_grad, twice; with checkpoint, too."""
    whole = WANTED_MODULES["gla", 0]
    for again in False, True:
        m = here(module("gla", cp_group=dist.group.WORLD, checkpoint=again))
        for p in m.parameters():
            p.main_grad = torch.zeros_like(p)
        for _ in range(2):
            y, left = m(own(part(whole.x, rank, EVEN)), use_cache=True,
                        state=like(whole.like, list(map(here, whole.first))))
            total = (here(part(whole.w, rank, EVEN)) * y).sum()
            if rank + 1 == ranks:
                total = total + sum((here(u) * s).sum() for u, s
                                    in zip(whole.u, listed(left)))
            total.backward()
        for n, p in m.named_parameters():
            dist.all_reduce(p.main_grad)
            check(f"main_grad: {n} alone", p.grad is None
                  and p.grad_added_to_main_grad)
            close(f"main_grad: {n}", p.main_grad / 2, whole.grads[n], 1e-4)


def prices(rank, ranks, folder):
    """What goes round, counted; and which way is taken."""
    v = flin.stdlib["gated_deltanet"]
    x = {n: own(t) for n, t in inputs(v, 2, 20).items()}
    state, M = [4 * t.numel() for t in v.summary(
        **{n: t.detach() for n, t in x.items()})]
    for by in "gather", "ring":
        sent, gather, send = [], dist.all_gather, dist.send

        def count(t):
            sent.append(t.numel() * t.element_size())
        dist.all_gather = lambda to, t, **more: (count(t),
                                                 gather(to, t, **more))
        dist.send = lambda t, *at, **more: (count(t), send(t, *at, **more))
        context_parallel(v, by=by)(**x)[0].sum().backward()
        dist.all_gather, dist.send = gather, send
        wanted = [state + M, state] if by == "gather" else \
            [state] * ((rank + 1 < ranks) + (rank > 0))
        check(f"bytes by {by}", sent == wanted, (sent, wanted))
    least, speed = measure(size=1 << 12)
    check("rates", least > 0 and speed > 0, (least, speed))
    slow_link, slow_start = (1e-6, 1e6), (1.0, 1e12)
    for rates, way in (slow_link, "ring"), (slow_start, "gather"):
        line = context_parallel(v, rates=rates).line
        line.n = 64
        check(f"the way at {rates}", line.way(state, M) == way)
    check("prices", ring_price(5, 100, 7, (1, 50)) == 4 * 3
          and gather_price(5, 100, 50, (1, 50)) == 3 + 4 * 3)


class Trained:
    """What two steps make of a layer: the weights."""

    def __init__(self):
        torch.manual_seed(3)
        self.x = torch.randn(2, ALL, 8)
        m = module("gated_deltanet")
        optimiser = torch.optim.AdamW(m.parameters(), 1e-2)
        for _ in range(2):
            step(m, m, optimiser, self.x)
        self.weights = dict(m.named_parameters())


def step(m, call, optimiser, x, times=1, group=None):
    """A loss that is a sum over tokens; gradients, too, are sums."""
    (times * call(x)[0].square().sum() / 100).backward()
    for p in m.parameters() if group else ():
        dist.all_reduce(p.grad, group=group)
    optimiser.step()
    optimiser.zero_grad()


def reloading(rank, ranks, folder):
    """A step on all ranks in DistributedDataParallel, whose mean times the
    ranks is the sum; what it leaves goes on on all but the first."""
    m = here(module("gated_deltanet", cp_group=dist.group.WORLD))
    optimiser = torch.optim.AdamW(m.parameters(), 1e-2)
    step(m, torch.nn.parallel.DistributedDataParallel(m), optimiser,
         here(part(WANTED_TRAINED.x, rank, EVEN)), ranks)
    rest = dist.new_group(list(range(1, ranks)))
    if rank == 0:
        torch.save([m.state_dict(), optimiser.state_dict()], folder + "/kept")
    dist.barrier()
    if rank == 0:
        return
    other = here(module("gated_deltanet", cp_group=rest))
    weights, moments = torch.load(folder + "/kept", map_location="cpu")
    optimiser = torch.optim.AdamW(other.parameters(), 1e-2)
    other.load_state_dict(weights)
    optimiser.load_state_dict(moments)
    ends = (0, 14, ALL)[:ranks - 1] + (ALL,)
    x = here(part(WANTED_TRAINED.x, rank - 1, ends))
    lengths = [b - a for a, b in zip(ends, ends[1:])]
    step(other, lambda x: other(x, lengths=lengths), optimiser, x,
         group=rest)
    for n, p in other.named_parameters():
        close(f"from {ranks} ranks to {ranks - 1}: {n}", p,
              WANTED_TRAINED.weights[n], 2e-4)


def dying(rank, ranks, folder):
    """The last rank goes: the others hear of it from torch.distributed."""
    m = here(module("gated_deltanet", cp_group=dist.group.WORLD))
    x = own(torch.randn(1, 9, 8))
    m(x)[0].sum().backward()            # what is compiled is there then
    x.grad = None
    y, _ = m(x)
    y.sum().item()
    start = time.monotonic()
    if rank == ranks - 1:
        os._exit(0)
    try:
        y.sum().backward()
        for _ in range(3):              # who is not beside it hears of it then
            dist.all_reduce(x.grad)
        float(x.grad.sum())
    except RuntimeError as e:
        check("torch.distributed's error", not isinstance(e, flin.Error),
              str(e))
    else:
        check("a rank that died", False, "nobody noticed")
    check("soon", time.monotonic() - start < 30)
    leave(folder, rank)
    os._exit(0)                         # whatever the others do


def leave(folder, rank):
    with open(f"{folder}/{rank}", "w") as f:
        json.dump([harness.passed, harness.failed], f)
    sys.stdout.flush()


def want(parts):
    """What one process makes of it all, as far as these parts look at it. Where
    ranks have GPUs each finds it, as CUDA cannot go on in a process that is
    forked."""
    global WANTED, WANTED_PACKED, WANTED_PIECES, WANTED_WIDE, \
        WANTED_TRAINED, WANTED_MODULES, WANTED_HALVES, WANTED_SEVERAL

    def of(part, names):
        return [n for n in names if part in parts]
    WANTED = {n: Whole(flin.stdlib[n]) for n in of("all_variants", NAMES)}
    WANTED_PACKED = {(n, i): Whole(flin.stdlib[n], cu, ALL)
                     for n in of("packed", (
                         "gated_deltanet", "mamba3", "mlstm",
                         "momentum_deltanet", "precond_gdn"))
                     if n in NAMES for i, cu in enumerate(PACKED)}
    WANTED_PIECES = {(n, i): Whole(flin.stdlib[n], None, LONG)
                     for n, i in of("pieces", (
                         ("gated_deltanet", 2), ("gla", 3), ("mamba3", 3),
                         ("mlstm", 2), ("rwkv7", 3), ("precond_gdn", 2)))
                     if n in NAMES}
    errors = flin.load(ERRORS)
    WANTED_SEVERAL = [(Whole(Side(errors, errors), cu, t), ends) for _ in of(
        "several", "1") for cu, t, ends in ((None, ENDS[-1], ENDS),
                                            (PACKED[2], ALL, EVEN))]
    WANTED_WIDE = {n: Whole(flin.stdlib[n], x=wide(flin.stdlib[n]))
                   for n in of("cards", NAMES if CARDS else ())}
    WANTED_TRAINED = Trained() if "reloading" in parts else None
    WANTED_MODULES = {
        (n, i): WholeModule(n, cu)
        for n in (MODULES if "layers" in parts else of("sums", ["gla"]))
        for i, cu in enumerate((None, [0, 3, 11, ALL]))
        if not cu or n in ("gated_deltanet", "rwkv7", "two", "mixer")}
    WANTED_HALVES = Halves() if "halves" in parts else None


def work(rank, ranks, what, folder):
    torch.set_num_threads(1)
    if CARDS and what != "dying":
        want(what.split(","))
    if what == "dying":                 # NCCL's errors, to those who wait
        os.environ["TORCH_NCCL_BLOCKING_WAIT"] = "1"
    dist.init_process_group(
        backend(rank), init_method=f"file://{folder}/met.{what}", rank=rank,
        world_size=ranks,
        timeout=timedelta(seconds=15 if what == "dying" else 60))
    harness.passed = harness.failed = 0
    for name in what.split(","):
        globals()[name](rank, ranks, folder)
        seen(rank, name)
    leave(folder, rank)
    dist.destroy_process_group()


def ran(what, folder, ranks=RANKS, left=0):
    processes.start_processes(work, (ranks, what, folder), nprocs=ranks,
                              start_method="spawn" if CARDS else "fork")
    for rank in range(ranks - left):
        with open(f"{folder}/{rank}") as f:
            passed, failed = json.load(f)
        os.remove(f"{folder}/{rank}")
        harness.passed += passed
        harness.failed += failed


if __name__ == "__main__":
    if not dist.is_available() or not CARDS and not dist.is_gloo_available():
        print("skip this PyTorch has no gloo")
        sys.exit()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    parts = [p for p in PARTS if p in WORDS] or list(PARTS)
    if not CARDS:
        want(parts)
    with tempfile.TemporaryDirectory() as folder:
        if parts != ["dying"]:
            ran(",".join(p for p in parts if p != "dying"), folder)
        if "dying" in parts:
            ran("dying", folder, left=1)
    end()
