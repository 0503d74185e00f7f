"""Parts of a sequence over ranks: what context_parallel takes beside one rank
with all of it, what goes round, and what that comes to for more ranks.

    torchrun --nproc-per-node 2 tests/bench/context.py [NAMES
        B=1 T=1048576 H=16 D=128 ranks=1024 alone=1 pieces=0 fla=1]

NAMES with commas (gated_deltanet,gla). On GPUs through NCCL, matrices in
bfloat16; else on CPUs through gloo, in float32. alone=0: the whole sequence
does not fit one rank, which is taken to need as long as its part, as often as
there are ranks. pieces: as context_parallel has them; 0: as many as it likes.
Where flash-linear-attention is installed and cuts sequences itself
(gated_deltanet, kda), it is measured on the same tensors; not by fla=0.

Milliseconds of forward and backward, medians; bytes are those that a rank
sends, counted, beside what flin.distributed says of them, gathered and in a
ring.

The table is a calculation from what was measured here: a part takes the
measured time a token; the ranks' messages what flin.distributed.ring_price and
gather_price say at the measured rates (flin.distributed.measure); where all is
gathered a state passes through each earlier rank's part in the measured time.
It knows of no slower link between nodes."""
import importlib
import math
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist

import tree                                         # noqa: F401
import flin.nn
from flin import _stages
from flin.distributed import (context_parallel, gather_price,
                              measure as measured_rates, ring_price)
import tuning

OPTIONS = {"B": 1, "T": 1048576, "H": 16, "D": 128, "ranks": 1024, "alone": 1,
           "pieces": 0, "fla": 1}
CUDA = torch.cuda.is_available()


def device():
    return torch.device("cuda", torch.cuda.current_device()) if CUDA \
        else torch.device("cpu")


def inputs(v, B, T, H, D):
    """Of this rank's tokens; gates in float32, as layers give them."""
    found = {}
    for a in v.inputs:
        shape = ((B, T, H) if a.timed else (H,)) + tuple(
            v.sizes[axis] or (D // 2 if axis == "p" else D)
            for axis in a.axes)
        half = CUDA and a.timed and a.domain in ("normal", "unit_norm")
        x = torch.randn(shape, device=device(),
                        dtype=torch.bfloat16 if half else torch.float32)
        found[a.name] = flin.nn.ACTIVATIONS[a.domain](x).requires_grad_()
    return found


BEGUN = time.monotonic()


def going(what):
    """Kernels are compiled at their first use: how far it has come."""
    if dist.get_rank() == 0:
        print(f"# {time.monotonic() - BEGUN:.0f} s: {what}", file=sys.stderr,
              flush=True)


def finished():
    if CUDA:
        torch.cuda.synchronize()


def median(f, n=5):
    """Milliseconds of f, which all ranks call; the slowest rank's."""
    found = []
    for i in range(n + 2):
        finished()
        dist.barrier()
        begun = time.perf_counter()
        f()
        finished()
        found.append(time.perf_counter() - begun)
    ms = torch.tensor(1e3 * statistics.median(found[2:]), device=device())
    dist.all_reduce(ms, op=dist.ReduceOp.MAX)
    return ms.item()


def both_ways(v, x, **more):
    """A call that goes forward and back."""
    def run():
        y, _ = v(**x, **more)
        torch.autograd.grad(y, list(x.values()), torch.ones_like(y),
                            allow_unused=True)
    return run


def forward_alone(v, x):
    def run():
        with torch.no_grad():
            v(**x)
    return run


def peer_of(name):
    """flash-linear-attention's function, with its cuts; None: it has none."""
    where = {"gated_deltanet": ("gated_delta_rule", "chunk_gated_delta_rule"),
             "kda": ("kda", "chunk_kda")}
    if name not in where or not CUDA:
        return None
    try:
        from fla.ops.cp import build_cp_context
        import peers
        module = importlib.import_module("fla.ops." + where[name][0])
    except ImportError:
        return None
    peers.unguarded()
    return getattr(module, where[name][1]), build_cp_context


def peer(name, v, o, x):
    """Prints milliseconds of it, cut, and of the whole on one rank; behind
    flin's lines, as it compiles and tunes for minutes. The whole last: it has
    2^31 numbers at the usual sizes, which not all count."""
    function, context = peer_of(name)
    tuning.begin()
    ends = torch.tensor([0, o["T"]], device=device())
    run = both_ways(function, x, cp_context=context(ends, dist.group.WORLD))
    run()
    going("flash-linear-attention, once")
    cut = median(run)
    if dist.get_rank() == 0:
        print(f"  flash-linear-attention, both ways: {cut:.2f} ms", flush=True)
    if not o["alone"]:
        return
    del x, run
    torch.cuda.empty_cache()
    whole = median(both_ways(function, inputs(v, o["B"], o["T"], o["H"],
                                              o["D"])), n=3)
    if dist.get_rank() == 0:
        print(f"  the whole on one rank {whole:.2f}: {whole / cut:.2f} times "
              "as fast", flush=True)


def alone(v, o):
    """Milliseconds of the whole sequence on one rank: forward, both ways. It
    takes most of a GPU's memory, which is given back."""
    x = inputs(v, o["B"], o["T"], o["H"], o["D"])
    found = median(forward_alone(v, x)), median(both_ways(v, x))
    if CUDA:
        torch.cuda.empty_cache()
    return found


def counting(f):
    """The bytes of each message that this rank sends in f."""
    found, gather, send = [], dist.all_gather, dist.send

    def count(t):
        found.append(t.numel() * t.element_size())
    dist.all_gather = lambda to, t, **more: (count(t), gather(to, t, **more))
    dist.send = lambda t, *at, **more: (count(t), send(t, *at, **more))
    try:
        f()
    finally:
        dist.all_gather, dist.send = gather, send
    return found


def levels(v, x):
    """Of each level of stages: the stages, with own and M."""
    found, start = [], {}
    for level in _stages.stages(v):
        parts = [stage.summary(x, start, None, 0) for stage in level]
        found.append((level, parts))
        for own, _ in parts:
            start.update(own)
    return found


def sizes(level):
    """Bytes of a level's states, of their transitions, of what goes back with
    gradients beside them: where a maximum is."""
    stages, parts = level
    state, move = (sum(4 * t.numel() for pair in parts for t in
                       pair[i].values()) for i in (0, 1))
    return state, move, sum(4 * t.numel() for s, (own, _) in
                            zip(stages, parts) if s.carry == "max"
                            for t in own.values())


def folded(found):
    """Milliseconds of the states' way through one part."""
    def run():
        for stages, parts in found:
            for stage, (own, moves) in zip(stages, parts):
                s = own
                for _ in range(16):
                    s = stage.after(own, moves, s)
    return median(run) / 16


def table(o, token, sent, rates, fold, whole):
    print(f"{'ranks':>6} {'tokens each':>12} {'parts':>10} {'gathered':>10} "
          f"{'a ring':>10} {'ms':>10} {'faster':>7}")
    for p in (2**i for i in range(1, int(math.log2(o["ranks"])) + 1)):
        part = token * o["T"] / p
        gather = sum(1e3 * (gather_price(p, s, m, rates)
                            + gather_price(p, s, turns, rates))
                     for s, m, turns in sent) + 2 * fold * (p - 1)
        ring = sum(2e3 * ring_price(p, s, m, rates) for s, m, _ in sent) \
            + 2 * fold * (p - 1)
        ms = part + min(gather, ring)
        print(f"{p:6} {o['T'] // p:12} {part:10.2f} {gather:10.3f} "
              f"{ring:10.3f} {ms:10.2f} {whole / ms:7.1f}")


def predicted(sent):
    """The bytes of the first rank's messages."""
    return {"gather": [s + m for s, m, _ in sent]
            + [s + turns for s, _, turns in reversed(sent)],
            "ring": [s for s, _, _ in sent]}


def say(name, o, rates, f):
    """What was found of flin."""
    ranks, part = dist.get_world_size(), o["T"] // dist.get_world_size()
    whole, cut, sent, fold = f["whole"], f["cut"], f["sent"], f["fold"]
    best = min(cut.values())
    print(f"{name}: B {o['B']} T {o['T']} H {o['H']} D {o['D']}, {ranks} ranks"
          f" of {part} tokens, {'NCCL' if CUDA else 'gloo'}")
    print(f"  both ways: gathered {cut['gather']:.2f} ms, in a ring "
          f"{cut['ring']:.2f}; a part by itself {f['local']:.2f}"
          + (f"; the whole on one rank {whole:.2f}: {whole / best:.2f} times as"
             " fast" if whole else ""))
    if whole:
        there, whole_there = f["there"], f["whole_there"]
        print(f"  forward alone: in a ring {there:.2f} ms, the whole on one "
              f"rank {whole_there:.2f}: {whole_there / there:.2f} times as "
              "fast")
    for by, counted in f["counted"].items():
        wanted = predicted(sent)[by]
        print(f"  {by}: the first rank sends {counted} bytes, predicted "
              f"{wanted}" + ("" if counted == wanted else ": NOT THE SAME"))
    print(f"  a message takes at least {1e3 * rates[0]:.3f} ms, "
          f"{rates[1] / 1e9:.2f} GB/s; a state's way through a part "
          f"{fold:.4f} ms")
    talk = sum(1e3 * (gather_price(ranks, s, m, rates)
                      + gather_price(ranks, s, turns, rates))
               for s, m, turns in sent) + 2 * fold * (ranks - 1)
    table(o, max(cut["gather"] - talk, 0) / part, sent, rates, fold,
          whole or f["local"] * ranks)
    sys.stdout.flush()


def measure(name, o, rates):
    v = flin.stdlib[name]
    fla = o["fla"] and o["B"] == 1 and peer_of(name)
    f = {"cut": {}, "counted": {}, "whole": None}
    going(name)
    if o["alone"]:
        f["whole_there"], f["whole"] = alone(v, o)
        going("the whole, alone")
    x = inputs(v, o["B"], o["T"] // dist.get_world_size(), o["H"], o["D"])
    found = levels(v, [t.detach() for t in x.values()])
    f["sent"] = [sizes(level) for level in found]
    going("what parts do to states")
    for by in "gather", "ring":
        parts = context_parallel(v, by=by, pieces=o["pieces"] or None)
        run = both_ways(parts, x)
        f["counted"][by] = counting(run)
        going(f"parts by {by}, once")
        f["cut"][by] = median(run)
    f["there"] = median(forward_alone(parts, x))
    f["local"], f["fold"] = median(both_ways(v, x)), folded(found)
    if dist.get_rank() == 0:
        say(name, o, rates, f)
    if fla:
        peer(name, v, o, x)


def main():
    words = sys.argv[1:]
    names = words.pop(0) if words and "=" not in words[0] \
        else "gated_deltanet,gla"
    o = {**OPTIONS, **{n: int(x) for n, x in (w.split("=") for w in words)}}
    if CUDA:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
    else:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("nccl" if CUDA else "gloo")
    rates = measured_rates(size=1 << (26 if CUDA else 22), device=device())
    for name in names.split(","):
        measure(name, o, rates)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
