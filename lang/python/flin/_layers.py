"""A layer whose tokens lie on ranks: its parts, one after another. Products and
what is of one token are a rank's own; convolutions get the last tokens of the
rank before; mixing rules go by what parts do to their states."""
import string

import torch

from . import _c, _context, _reports, _state, _torch
from ._line import Halo, Relay
from ._variant import Variant


class Value:
    """A value of the layer: [B, T, axes...] or [axes...]."""

    def __init__(self, tensor, axes, timed):
        self.tensor, self.axes, self.timed = tensor, axes, timed
        self.wide = None

    def wider(self):
        """The same in float32, at least."""
        if self.tensor.dtype in (torch.float32, torch.float64):
            return self
        if self.wide is None:
            self.wide = Value(self.tensor.float(), self.axes, self.timed)
        return self.wide

    def ordered(self, axes):
        """With these axes; those that it lacks are 1 long."""
        lead = 2 if self.timed else 0
        t = self.tensor.permute(*range(lead), *(
            lead + self.axes.index(a) for a in axes if a in self.axes))
        for i, a in enumerate(axes):
            if a not in self.axes:
                t = t.unsqueeze(lead + i)
        return t


class Tokens:
    """What a call's tokens are: sequences, and each rank's number of them."""

    def __init__(self, line, x, cu, lengths):
        self.line, self.packing, self.like = line, None, x
        self.batch, self.n = x.shape[:2]
        if cu is not None:
            self.packing = _context.Packing(cu, lengths, line, self.n)
        self.rows = self.packing.rows if cu is not None \
            else _context.Rows(None, line.rank > 0)
        self.shortest = min(lengths) if lengths is not None else self.n
        self.cu = self.rows.cu
        self.sequences = self.batch if cu is None else len(self.cu) - 1

    def own(self, s):
        return self.packing.own(s) if self.packing else s

    def spread(self, s):
        return self.packing.spread(s) if self.packing else s


class Part:
    def __init__(self, layer, i, about, sizes):
        self.about, self.y = about, about["y"]
        self.inputs = list(about["inputs"])
        self.states = list(about.get("states") or ())
        self.taps, self.heads = about.get("taps"), about.get("heads")
        self.variant = None
        if about["step"]:
            self.variant = Variant(layer.given, lambda device: _state.derive(
                layer._caller(device).handle,
                f"return (...):part({i + 1}, {sizes})\n"))

    def run(self, values, tokens, state):
        """Its value, and the layer's states behind it, by name."""
        x = [values(i) for i in self.inputs]
        if self.y["wide"]:              # as a layer has it on a GPU
            x = [v.wider() for v in x]
        if self.variant is None:
            return self.product(x), {}
        x = [self.argument(*pair, tokens) for pair
             in zip(self.variant.inputs, self.inputs, x)]
        left = {}
        if self.about["constant"]:
            y, = _torch.call(self.variant, x, [], None, 0, 1.0, False, False,
                             0)
        elif not self.states:
            y, = _torch.call(self.variant, x, [], tokens.cu, 0, 1.0, False,
                             False, 0)
        else:
            y, left = (self.convolved if self.taps else self.mixed)(
                x, tokens, state)
        if not self.y["wide"]:
            y = y.to(tokens.like.dtype)
        return self.value(y), left

    def product(self, x):
        """A matrix product with a weight."""
        letters = dict(zip(dict.fromkeys([*x[0].axes, *x[1].axes]),
                           string.ascii_lowercase))
        axes = list(self.y["axes"])
        words = ["".join(letters[a] for a in of)
                 for of in (x[0].axes, x[1].axes, axes)]
        lead = ["YZ" if v.timed else "" for v in x]
        out = "YZ" if self.y["timed"] else ""
        y = torch.einsum(f"{lead[0]}{words[0]},{lead[1]}{words[1]}->"
                         f"{out}{words[2]}", x[0].tensor,
                         x[1].tensor.to(x[0].tensor.dtype))
        return Value(y, axes, self.y["timed"])

    def argument(self, a, about, v, tokens):
        """The value as the part's variant takes it."""
        order = list(about["order"] or ())
        t = v.ordered([self.heads, *order] if self.heads else order)
        lead = 2 if v.timed else 0
        if not self.heads:
            t = t.unsqueeze(lead)
        if a.timed and not v.timed:
            n = (1, 1) if self.about["constant"] else (tokens.batch, tokens.n)
            t = t.expand(*n, *t.shape)
        return t

    def value(self, y):
        axes, timed = list(self.y["axes"]), self.y["timed"]
        if not self.heads:
            y = y.squeeze(2)
        if not timed:
            y = y[0, 0]
        has = ([self.heads] if self.heads else []) + list(
            self.y["order"] or ())
        v = Value(y, has, timed)
        return Value(v.ordered(axes), axes, timed)

    # ---- states: [N, axes...] of the layer, [N, H, axes...] of the part ----

    def inner(self, s, axes, order):
        t = s.permute(0, *(1 + axes.index(a) for a in order))
        return t if self.heads else t.unsqueeze(1)

    def outer(self, t):
        """Its axes behind N are then those of order()."""
        return t if self.heads else t.squeeze(1)

    def order(self, s):
        return ([self.heads] if self.heads else []) + list(s["order"] or ())

    def mixed(self, x, tokens, state):
        """A variant, or the token before."""
        first = [None if state.get(s["name"]) is None
                 else self.inner(tokens.own(state[s["name"]][0]),
                                 state[s["name"]][1], self.order(s))
                 for s in self.states]
        y, *left = _context.call(self.variant, tokens.line, tokens.rows, 0,
                                 first, x)
        return y, {s["name"]: (tokens.spread(self.outer(t)), self.order(s))
                   for s, t in zip(self.states, left)}

    def convolved(self, x, tokens, state):
        """A convolution of W taps, whose states are x of 1 .. W tokens
        earlier: those of the rank before, where a sequence began there."""
        name, W = self.states[0]["name"], len(self.states)
        order, rows = self.order(self.states[0]), tokens.rows
        like = x[0][:, :1]
        before = like.new_zeros(tokens.sequences, W, *like.shape[2:])
        if name in state:
            s, axes = state[name]
            at = 1 + axes.index(self.taps)
            s = tokens.own(s).to(before.dtype).movedim(at, 1)
            axes = [a for a in axes if a != self.taps]
            s = s.permute(0, 1, *(2 + axes.index(a) for a in order))
            before = s if self.heads else s.unsqueeze(2)
        halo = W - 1
        if halo:
            came = self.neighbours(x[0], halo, before, tokens)
            before = self.begin(before, came, tokens)
        first = [before[:, W - 1 - i].contiguous() for i in range(W)]
        y, *left = _torch.call(self.variant, x, first, tokens.cu, 0, 1.0,
                               False, True, 0)
        end = torch.stack(left[::-1], 1)        # the latest last
        end = end if self.heads else end.squeeze(2)
        return y, {name: (tokens.spread(end), [self.taps, *order])}

    def neighbours(self, x, halo, before, tokens):
        """The last tokens of the rank before; on the first one zeros, through
        which nothing goes."""
        first = torch.zeros_like(x[:, :1]).expand(-1, halo, *x.shape[2:])
        if tokens.shortest >= halo:
            return Halo.apply(tokens.line, x[:, -halo:].contiguous(),
                              first.contiguous())
        return Relay.apply(tokens.line, x[:, -halo:].contiguous(),
                           first.contiguous())

    def begin(self, before, came, tokens):
        """What is before the first token of each sequence."""
        rows, halo = tokens.rows, came.shape[1]
        if not rows.begun:              # what came counts nothing
            return before + came[:, :0].sum()
        if not rows.packed:
            return torch.cat([before[:, :1] * 0, came], 1)
        n = min(tokens.packing.before, halo)    # of the same sequence
        first = torch.cat([before[:1, n:], came[:, halo - n:]], 1)
        return torch.cat([first + came[:, :0].sum(), before[1:]])


class Added(torch.autograd.Function):
    """A weight, whose gradient goes to its main_grad."""
    @staticmethod
    def forward(ctx, w):
        ctx.w = w
        return w.view_as(w)

    @staticmethod
    def backward(ctx, d):
        ctx.w.main_grad.add_(d)
        ctx.w.grad_added_to_main_grad = True


class CutLayer:
    """A layer, called on parts of sequences."""

    def __init__(self, layer, line, sizes):
        self.layer, self.line = layer, line
        options = _reports.options(sizes)
        found = _reports.parsed(_state.report(
            layer._caller(_state.cpu()).handle,
            f"return (...):parts {options}\n", _c.JSON))
        self.parts = [Part(layer, i, about, options)
                      for i, about in enumerate(found)]
        self.axes = {a.name: list(a.axes) for a in layer.inputs}
        self.check()

    def check(self):
        """That each part's states can be found from parts of sequences."""
        for p in self.parts:
            if p.states and not p.taps:
                _context.stages(p.variant)

    def adding(self, arguments):
        """The arguments, those that have a main_grad led to it."""
        want = [torch.is_grad_enabled() and arguments[a.name].requires_grad
                for a in self.layer.inputs]
        sums = _torch.sums(self.layer, [arguments[a.name] for a
                                        in self.layer.inputs], want)
        return {**arguments, **{
            a.name: Added.apply(arguments[a.name]) for a, t
            in zip(self.layer.inputs, sums) if t is not None}}

    def __call__(self, arguments, state, final, cu, lengths):
        timed = [a.name for a in self.layer.inputs if a.timed]
        arguments = self.adding(arguments)
        tokens = Tokens(self.line, arguments[timed[0]], cu, lengths)
        made, left = {}, {}

        def value(about):
            if about["id"] not in made:
                made[about["id"]] = given(about, list(about["axes"] or ()))
            return made[about["id"]]

        def given(about, axes):
            if "number" in about:
                return Value(tokens.like.new_tensor(about["number"]), axes,
                             False)
            name = about["argument"]
            v = Value(arguments[name], self.axes[name], about["timed"])
            return Value(v.ordered(axes), axes, about["timed"])

        first = {a.name: (s, list(a.axes)) for a, s in zip(
            self.layer.states, self.layer._take_states("state", state))
            if s is not None}
        for p in self.parts:
            y, behind = p.run(value, tokens, first)
            made[p.y["id"]] = y
            left.update(behind)
        y = y.ordered(list(self.layer.output.axes))
        if not final:
            return y, None
        found = []
        for a in self.layer.states:
            t, order = left[a.name]
            found.append(t.permute(0, *(1 + order.index(x) for x in a.axes)))
        return y, self.layer._give_states(found)
