"""A sequence over ranks, each of which has a part of it.

What a part does to the state is S -> M S + own, with M and own of its own
tokens alone (Variant.summary). All ranks gather these, and from them each
computes what its part starts from; then it runs its part. Backward, the part's
gradient at its start is that of the ranks behind it, through M transposed, plus
its own: the same way round, from the last rank to the first. A gradient at what
is given is linear in that at y and that at the end, so the part runs backward
once for its own, and once more when its end's is known."""
import torch
import torch.distributed as dist

from . import _c, _state
from ._calls import SAVING, Caller, Request
from ._torch import run


class Parts:
    """What of each rank a state goes through: (own, M), in their order."""

    def __init__(self, group, transposes, own, transition):
        self.transposes = transposes    # M acts on the state's second axis
        self.rank, n = dist.get_rank(group), dist.get_world_size(group)
        self.own, self.transition, self.group = [own] * n, [transition] * n, \
            group
        self.gather([own, transition])

    def gather(self, mine):
        """The tensors of all ranks, by rank: in one piece each."""
        flat = torch.cat([t.reshape(-1) for t in mine])
        everyone = [torch.empty_like(flat) for _ in self.own]
        dist.all_gather(everyone, flat, group=self.group)
        sizes = [t.numel() for t in mine]
        cut = [[part.view(t.shape) for part, t in zip(a.split(sizes), mine)]
               for a in everyone]
        self.own = [parts[0] for parts in cut]
        if len(mine) > 1:
            self.transition = [parts[1] for parts in cut]

    def through(self, i, s, back=False):
        """M of rank i times the state; back: its transpose."""
        m = self.transition[i]
        if m.dim() == 3:
            return m.unsqueeze(2 if self.transposes else 3) * s
        m = m.mT if back else m
        return s @ m.mT if self.transposes else m @ s

    def start(self, first):
        """What this rank's part starts from."""
        s = first
        for i in range(self.rank):
            s = self.own[i] + self.through(i, s)
        return s

    def end(self):
        """The gradient at this rank's end, of the ranks behind it; their own
        are gathered in `own`."""
        d = torch.zeros_like(self.own[0])
        for i in reversed(range(self.rank + 1, len(self.own))):
            d = self.own[i] + self.through(i, d, back=True)
        return d


def run_part(variant, group, mode, chunk, first, x):
    """The call that runs this rank's part, its results, all parts."""
    own, transition = run(variant, Request(_c.FORWARD, x, chunk=chunk,
                                           final=True), Caller.summary)
    _, axis = _state.transition(variant._caller(_state.cpu()).handle)
    parts = Parts(group, variant.states[0].axes.index(axis) == 1, own,
                  transition)
    start = parts.start(torch.zeros_like(own) if first is None
                        else first.to(own.dtype))
    r = Request(mode, x, [start.contiguous()], chunk=chunk, final=True)
    return r, run(variant, r), parts


class Across(torch.autograd.Function):
    @staticmethod
    def forward(ctx, variant, group, chunk, first, *x):
        r, (y, final), ctx.parts = run_part(variant, group, SAVING, chunk,
                                            first, x)
        ctx.save_for_backward(*x, r.s0[0], r.saved)
        ctx.rest = variant, chunk, r.note, first, y.new_zeros(()).expand(
            y.shape)
        ctx.set_materialize_grads(False)
        return y, final

    @staticmethod
    def backward(ctx, dy, dfinal):
        *x, start, saved = ctx.saved_tensors
        variant, chunk, note, first, zeros = ctx.rest
        parts = ctx.parts
        dy = zeros.contiguous() if dy is None else dy

        def run_back(want, d):
            return run(variant, Request(_c.BACKWARD, x, [start], chunk=chunk,
                                        dy=dy, ds=[d], want=want, saved=saved,
                                        note=note))
        n = len(x)
        own, = run_back((False,) * n + (True,), dfinal)
        parts.gather([own])
        d = parts.end() if dfinal is None else parts.end() + dfinal
        found = run_back((True,) * (n + 1), d.contiguous())
        *dx, dstart = found
        if first is not None:
            first = dstart.to(first.dtype) * (parts.rank == 0)
        return (None, None, None, first, *dx)


def call(variant, group, chunk, first, x):
    """y and the state behind it; differentiable where anything asks for it."""
    if torch.is_grad_enabled() and any(
            t.requires_grad for t in [*x, first] if t is not None):
        return Across.apply(variant, group, chunk, first, *x)
    return run_part(variant, group, _c.FORWARD, chunk, first, x)[1]
