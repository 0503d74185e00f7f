"""Parts of a sequence over ranks: what context_parallel takes beside one rank
with all of it, what goes round, and what that comes to for more ranks.

    torchrun --nproc-per-node 2 tests/bench/context.py [NAMES
        B=1 T=1048576 H=16 D=128 ranks=1024 alone=1]

NAMES with commas (gated_deltanet,gla). On GPUs through NCCL, in bfloat16; else
on CPUs through gloo, in float32. alone=0: the whole sequence does not fit one
rank, which is taken to need as long as its part, as often as there are ranks.
Milliseconds of forward and backward, medians; bytes are those that a rank gets
of another, counted, beside what flin.distributed says of them.

The table is a calculation from what was measured here: a part takes the
measured time a token; a gathering takes the smallest one's time, log2(ranks)
times, and its bytes at the measured rate; a state passes through each earlier
rank's part in the measured time. It knows of no slower link between nodes."""
import math
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist

import flin
from flin.distributed import context_parallel

OPTIONS = {"B": 1, "T": 1048576, "H": 16, "D": 128, "ranks": 1024, "alone": 1}
DOMAIN = {"log_decay": torch.nn.functional.logsigmoid, "unit": torch.sigmoid,
          "positive": torch.nn.functional.softplus,
          "unit_norm": lambda x: torch.nn.functional.normalize(x, dim=-1)}
CUDA = torch.cuda.is_available()


def device():
    return torch.device("cuda", torch.cuda.current_device()) if CUDA \
        else torch.device("cpu")


def inputs(v, B, T, H, D):
    """Of this rank's tokens."""
    dtype, found = torch.bfloat16 if CUDA else torch.float32, {}
    for a in v.inputs:
        shape = ((B, T, H) if a.timed else (H,)) + tuple(
            v.sizes[axis] or D for axis in a.axes)
        x = torch.randn(shape, device=device(),
                        dtype=dtype if a.timed else torch.float32)
        found[a.name] = DOMAIN.get(a.domain, lambda x: x)(x).requires_grad_()
    return found


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


def both_ways(v, x):
    """A call that goes forward and back."""
    def run():
        y, _ = v(**x)
        torch.autograd.grad(y, list(x.values()), torch.ones_like(y),
                            allow_unused=True)
    return run


def gathered(numbers):
    """Milliseconds of gathering so many float32 of each rank."""
    mine = torch.zeros(numbers, device=device())
    everyone = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    return median(lambda: dist.all_gather(everyone, mine))


def counting(f):
    """The bytes that f gathers of each other rank, one number a gathering."""
    found, gather = [], dist.all_gather

    def count(to, mine, **more):
        found.append(mine.numel() * mine.element_size())
        return gather(to, mine, **more)
    dist.all_gather = count
    try:
        f()
    finally:
        dist.all_gather = gather
    return found


def folded(own, transition):
    """Milliseconds of a state's way through one part."""
    def run():
        s = own
        for _ in range(16):
            s = own + (transition @ s if transition.dim() == 4
                       else transition.unsqueeze(3) * s)
    return median(run) / 16


def table(o, token, smallest, rate, fold, sent, whole):
    print(f"{'ranks':>6} {'tokens each':>12} {'MB each gets':>13} "
          f"{'parts':>10} {'gathering':>10} {'passing':>9} {'ms':>10} "
          f"{'faster':>7}")
    for p in (2**i for i in range(1, int(math.log2(o["ranks"])) + 1)):
        part = token * o["T"] / p
        bytes_ = sum(sent) * (p - 1)
        gather = len(sent) * smallest * math.log2(p) + bytes_ / rate
        passing = len(sent) * fold * (p - 1)
        ms = part + gather + passing
        print(f"{p:6} {o['T'] // p:12} {bytes_ / 2**20:13.1f} {part:10.2f} "
              f"{gather:10.3f} {passing:9.3f} {ms:10.2f} {whole / ms:7.1f}")


def measure(name, o):
    v, ranks, first = flin.stdlib[name], dist.get_world_size(), \
        dist.get_rank() == 0
    part = o["T"] // ranks
    x = inputs(v, o["B"], part, o["H"], o["D"])
    run = both_ways(context_parallel(v), x)
    own, transition = v.summary(**{n: t.detach() for n, t in x.items()})
    state, move = own.numel(), transition.numel()
    sent = counting(run)
    cut, local = median(run), median(both_ways(v, x))
    smallest = gathered(1)
    rate = sum(sent) / max(gathered(sum(sent) // 4) - smallest, 1e-3)
    fold = folded(own, transition)
    whole = None
    if o["alone"]:
        del x
        y = inputs(v, o["B"], o["T"], o["H"], o["D"])
        whole = median(both_ways(v, y))
    if not first:
        return
    print(f"{name}: B {o['B']} T {o['T']} H {o['H']} D {o['D']}, {ranks} ranks"
          f" of {part} tokens, {'NCCL' if CUDA else 'gloo'}")
    print(f"  both ways: {cut:.2f} ms; a part by itself {local:.2f}"
          + (f"; the whole on one rank {whole:.2f}: {whole / cut:.2f} times as"
             " fast" if whole else ""))
    print(f"  a rank sends {sent} bytes, predicted "
          f"{[4 * (state + move), 4 * state]}; a gathering takes at least "
          f"{smallest:.3f} ms, {rate / 1e6:.2f} GB/s, a part {fold:.4f} ms")
    token = (cut - sum(smallest * math.log2(ranks) + b * (ranks - 1) / rate
                       for b in sent)) / part
    table(o, max(token, 0), smallest, rate, fold, sent,
          whole or local * ranks)


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
    for name in names.split(","):
        measure(name, o)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
