"""The ranks that have parts of a sequence, in a line: what they tell each
other, and what it costs."""
import math

import torch
import torch.distributed as dist

from . import Error

# Where nothing says how fast the ranks' link is: seconds that a message takes
# at least, bytes a second behind that. Assumed, not measured.
RATES = 20e-6, 100e9


def ring_price(ranks, state, move, rates=RATES):
    """Seconds until the last rank knows its start, where each waits for the
    one before, and sends on the state that its part leaves. In bytes: a state,
    and what its transition takes."""
    latency, speed = rates
    return (ranks - 1) * (latency + state / speed)


def gather_price(ranks, state, move, rates=RATES):
    """The same where all get what all parts do to a state, at once."""
    latency, speed = rates
    return math.ceil(math.log2(ranks)) * latency \
        + (ranks - 1) * (state + move) / speed


def measure(group=None, size=1 << 22, device=None):
    """(seconds, bytes per second) of this group's link: messages from each
    rank to the next one, of one number and of `size` bytes; the slowest
    rank's. All ranks call it."""
    import time
    line = Line(group)
    device = device or ("cuda" if dist.get_backend(group) == "nccl"
                        else "cpu")

    def seconds(numbers, n=8):
        t = torch.zeros(numbers, device=device)
        found = []
        for _ in range(n):
            dist.barrier(group=group)
            if t.is_cuda:
                torch.cuda.synchronize()
            begun = time.perf_counter()
            line.shift(t, t, 1)
            if t.is_cuda:
                torch.cuda.synchronize()
            found.append(time.perf_counter() - begun)
        worst = torch.tensor(sorted(found)[n // 2], device=device)
        dist.all_reduce(worst, op=dist.ReduceOp.MAX, group=group)
        return worst.item()
    least = seconds(1)
    return least, size / max(seconds(size // 4) - least, 1e-9)


class Line:
    """by: "ring", "gather" or None, which takes what is cheaper by `rates`."""

    def __init__(self, group=None, by=None, rates=None):
        if by not in (None, "ring", "gather"):
            raise Error(f"by is {by!r}: \"ring\", \"gather\" or None, which "
                        "takes the cheaper one, is wanted")
        self.group, self.by, self.rates = group, by, rates or RATES
        self.rank, self.n = dist.get_rank(group), dist.get_world_size(group)

    def way(self, state, move):
        """By what states go, which take so many bytes."""
        if self.by:
            return self.by
        return "ring" if ring_price(self.n, state, move, self.rates) \
            < gather_price(self.n, state, move, self.rates) else "gather"

    def peer(self, rank):
        """The rank as torch.distributed counts all of them."""
        if self.group is None:
            return rank
        find = getattr(dist, "get_global_rank", None) \
            or dist.distributed_c10d._get_global_rank
        return find(self.group, rank)

    def gather(self, t):
        """The tensors of all ranks, by rank."""
        everyone = [torch.empty_like(t) for _ in range(self.n)]
        dist.all_gather(everyone, t, group=self.group)
        return everyone

    def send(self, t, to):
        dist.send(t, self.peer(to), group=self.group)

    def receive(self, t, of):
        """Into t."""
        dist.recv(t, self.peer(of), group=self.group)
        return t

    def shift(self, t, first, by):
        """What the rank `by` ranks before this one has; where there is none,
        first. All are shaped alike."""
        got, to, of = torch.empty_like(t), self.rank + by, self.rank - by
        todo = []
        if 0 <= to < self.n:
            todo.append(dist.P2POp(dist.isend, t.contiguous(), self.peer(to),
                                   group=self.group))
        if 0 <= of < self.n:
            todo.append(dist.P2POp(dist.irecv, got, self.peer(of),
                                   group=self.group))
        for work in dist.batch_isend_irecv(todo) if todo else ():
            work.wait()
        return got if 0 <= of < self.n else first


def flat(tensors):
    return torch.cat([t.reshape(-1) for t in tensors])


def unflat(t, like):
    """Its parts, shaped as these."""
    parts = t.split([x.numel() for x in like])
    return [part.view(x.shape) for part, x in zip(parts, like)]


class Halo(torch.autograd.Function):
    """The last tokens of the rank before, of the first rank `first`."""
    @staticmethod
    def forward(ctx, line, tail, first):
        ctx.line = line
        return line.shift(tail, first, 1).clone()

    @staticmethod
    def backward(ctx, d):
        line, d = ctx.line, d.contiguous()
        tail = line.shift(d, torch.zeros_like(d), -1)
        return None, tail, d if line.rank == 0 else torch.zeros_like(d)


class Relay(torch.autograd.Function):
    """The same where a rank may have fewer tokens than are wanted: it passes on
    some of those that it has got."""
    @staticmethod
    def forward(ctx, line, tail, first):
        ctx.line, ctx.own = line, tail.shape[1]
        got = first.clone()
        if line.rank:
            line.receive(got, line.rank - 1)
        if line.rank + 1 < line.n:
            n = got.shape[1]
            line.send(torch.cat([got, tail], 1)[:, -n:].contiguous(),
                      line.rank + 1)
        return got

    @staticmethod
    def backward(ctx, d):
        line, d, n = ctx.line, d.contiguous().clone(), d.shape[1]
        tail = torch.zeros_like(d)
        if line.rank + 1 < line.n:
            line.receive(tail, line.rank + 1)
        passed = n - ctx.own            # of what this rank had got
        if passed:
            d[:, ctx.own:] += tail[:, :passed]
        if line.rank:
            line.send(d, line.rank - 1)
        return None, tail[:, passed:].contiguous(), \
            d if line.rank == 0 else torch.zeros_like(d)
