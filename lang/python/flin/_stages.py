"""The order in which a variant's states are found, and what tokens do to
them."""
import torch

from . import _c, _reports, _state
from ._calls import Caller, Request, describe
from ._torch import run
from ._variant import Variant


class Stage:
    """States that are found together. variant: that has them, and those that
    they need, alone."""

    def __init__(self, variant, states, needs, carry):
        self.variant, self.states, self.needs = variant, states, needs
        self.carry, self.axis, self.level = carry, None, 0
        if carry in ("rows", "matrix"):
            axis = _state.transition(
                variant._caller(_state.cpu()).handle)[2]
            one, = {tuple(a.axes) for a in variant.states
                    if a.name in states}
            self.axis = one.index(axis)

    def order(self, values):
        """The values by state name as the stage's variant has them, None
        where there is none."""
        return [values.get(a.name) for a in self.variant.states]

    def summary(self, x, needs, cu, chunk, begin=None):
        """(own, M), by the states' names. needs: the states that they need,
        as they are before the tokens. begin: of these tokens, a call that saves
        and is begun here, if it can be."""
        first = self.order({n: needs[n] for n in self.needs})
        r = begin or Request(_c.FORWARD, x, first if self.needs else (), cu,
                             chunk, final=True, in_parts=True)
        found = run(self.variant, r, Caller.summary)
        n = len(self.states)
        names = [a.name for a in self.variant.states if a.name in self.states]
        return dict(zip(names, found[:n])), dict(zip(names, found[n:]))

    def no_gradient(self, x, cu):
        """dy of its result, which nobody reads: None, on a GPU zeros (the
        workspace has no room for them)."""
        def zeros(caller, door, r):
            groups = [("input", describe(door, caller.inputs, r.x)),
                      ("initial", [])]
            (shape, dtype), *_ = caller.made(
                door, r, groups, 0 if cu is None else len(cu) - 1, False)
            return door.empty(shape, dtype, r.x[0]).zero_()
        if not x[0].is_cuda:
            return ()
        return run(self.variant, Request(_c.FORWARD, x, (), cu), zeros),

    def through(self, moves, s):
        """M times the states, by name; where they are a maximum, M added."""
        if self.carry == "max":
            return {n: moves[n] + t for n, t in s.items()}
        if self.carry == "entries":
            return {n: moves[n] * t for n, t in s.items()}
        if self.carry == "rows":
            return {n: moves[n].unsqueeze(3 - self.axis) * t
                    for n, t in s.items()}
        rows = torch.cat([self.turned(t) for t in s.values()], 2)
        return {n: self.turned(moves[n] @ rows) for n in s}

    def turned(self, t):
        """Rows first; or back."""
        return t.mT if self.axis == 1 else t

    def after(self, own, moves, s):
        """The states behind tokens that find these."""
        moved = self.through(moves, s)
        if self.carry == "max":
            return {n: torch.maximum(t, own[n]) for n, t in moved.items()}
        return {n: own[n] + t for n, t in moved.items()}

    def composed(self, moves, first):
        """What tokens do behind those that do the first: moves times these."""
        if self.carry == "max":
            return {n: moves[n] + t for n, t in first.items()}
        if self.carry != "matrix":
            return {n: moves[n] * t for n, t in first.items()}
        rows = torch.cat(list(first.values()), 2)
        return {n: t @ rows for n, t in moves.items()}

    def slopes(self, own, moves, s):
        """By what gradients go back: M, or where its maximum is."""
        if self.carry == "max":
            return {n: (moves[n] + t >= own[n]).to(t.dtype)
                    for n, t in s.items()}
        return moves

    def back(self, slopes, d):
        """The gradient before the tokens, of that behind them."""
        if self.carry != "matrix":
            if self.carry == "max":
                return {n: slopes[n] * t for n, t in d.items()}
            return self.through(slopes, d)
        total = sum(slopes[n].mT @ self.turned(t) for n, t in d.items())
        parts = total.chunk(len(d), 2)
        return {n: self.turned(t) for n, t in zip(d, parts)}

    def closed(self, moves):
        """Of tokens behind which nothing is left of what was before."""
        empty = float("-inf") if self.carry == "max" else 0
        return {n: torch.full_like(t, empty) for n, t in moves.items()}


def stages(variant):
    """The variant's, those of one level beside each other. Error, with the
    term, where a state's next value is not linear in it."""
    if not hasattr(variant, "_stages"):
        handle = variant._caller(_state.cpu()).handle
        found = _reports.parsed(_state.report(
            handle, "return (...):stages()\n", _c.JSON))
        variant._stages = levelled([made(variant, found, i)
                                    for i in range(len(found))])
    return variant._stages


def made(variant, found, i):
    s = found[i]
    if len(found) == 1 and s["carry"] in ("rows", "matrix"):
        own = variant
    else:
        own = Variant(variant.given, lambda device: _state.derive(
            variant._caller(device).handle,
            f"return (...):stage({i + 1})\n"))
    return Stage(own, list(s["states"]), list(s["needs"] or ()), s["carry"])


def levelled(all):
    level = {}
    for s in all:
        s.level = 1 + max((level[n] for n in s.needs), default=-1)
        level.update(dict.fromkeys(s.states, s.level))
    return [[s for s in all if s.level == i]
            for i in range(1 + max((s.level for s in all), default=-1))]
