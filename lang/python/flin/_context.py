"""A sequence over ranks, each of which has a part of it.

What a part does to states is found from its own tokens alone (_stages.py), one
stage after another; the ranks tell each other (_line.py), and each then runs
its part from its own start. Backward goes the same way round, from the last
rank to the first, and from the last stage to the first. A gradient at what is
given is linear in that at y and those at the ends: so the part runs backward
once for what its own y says of the last stages' states, and once more when
their ends' gradients are known. What those of earlier stages add is found by
the steps of these states alone.

Of packed sequences a rank has rows: one that began on a rank before, at most,
and the last may go on behind it; all others are its own.

Where heads are too few for a GPU's processors, a part that is not packed is cut
once more, in pieces that run side by side: what is found out about a part is
found out about its pieces, and put together, so that nothing runs twice for
it."""
import torch

from . import Error, _c
from ._calls import SAVING, Request
from ._line import flat, unflat
from ._stages import stages
from ._torch import contiguous, run

CHUNK = 64                      # tokens of a chunk: pieces are whole ones
LEAST = 16 * CHUNK              # of a piece: assumed, not measured
ALIKE = 1.02                    # predictions that tell nothing


class Rows:
    """This rank's sequences: their ends (None: batch entries), whether the
    first (without ends: each) began before, and which ones go on: all, or the
    last."""

    def __init__(self, cu, begun):
        self.cu, self.begun = cu, begun
        self.packed = cu is not None
        self.through = begun and (not self.packed or len(cu) == 2)

    def came(self, t):
        """Of a state's rows those that began before."""
        return t[:1] if self.packed else t

    def goes(self, t):
        """Those that may go on."""
        return t[-1:] if self.packed else t

    def carried(self, stage, own, moves, first):
        """(own, M) of the part as a whole: from what began before to what goes
        on. first: the starts that are known."""
        if self.through:
            return own, moves
        after = stage.after(own, moves, first)
        return {n: self.goes(t) for n, t in after.items()}, \
            stage.closed({n: self.goes(t) for n, t in moves.items()})

    def begin(self, stage, own, moves, first, came):
        """The starts: given ones, and those of the ranks before."""
        if not self.begun:
            return first
        return {n: torch.cat([t, first[n][1:]]) if self.packed else t
                for n, t in came.items()}

    def back(self, stage, slopes, d):
        """Of gradients at starts those of what came here."""
        return {n: self.came(d[n]) if self.begun
                else torch.zeros_like(self.goes(d[n])) for n in stage.states}

    def ends(self, stage, slopes, d, behind):
        """The gradients at all rows' ends, of what is behind this rank."""
        if not self.packed:
            return behind
        return {n: torch.cat([torch.zeros_like(d[n][:-1]), t])
                for n, t in behind.items()}

    def given(self, t):
        """Of gradients at starts those of what was given."""
        if self.begun:
            self.came(t).zero_()
        return t


class Pieces(Rows):
    """Batch entries, each cut in n: these run side by side, as sequences of
    their own, and states go from one to the next as from rank to rank. A call
    has all of them as one batch entry."""

    def __init__(self, begun, batch, tokens, n):
        each = -(-tokens // (n * CHUNK)) * CHUNK
        at = range(0, tokens, each)
        self.batch, self.n = batch, len(at)
        super().__init__(torch.tensor([b * tokens + i for b in range(batch)
                                       for i in at] + [batch * tokens]), begun)

    def split(self, tensors):
        """By piece, of tensors by name."""
        found = {n: t.unflatten(0, (self.batch, self.n)).unbind(1)
                 for n, t in tensors.items()}
        return [{n: t[i] for n, t in found.items()} for i in range(self.n)]

    def merged(self, pieces):
        return {n: torch.stack([p[n] for p in pieces], 1).flatten(0, 1)
                for n in pieces[0]}

    def carried(self, stage, own, moves, first):
        (own, moves), *rest = zip(self.split(own), self.split(moves))
        if not self.begun:
            own = stage.after(own, moves, self.split(first)[0])
            moves = stage.closed(moves)
        for o, m in rest:
            own, moves = stage.after(o, m, own), stage.composed(m, moves)
        return own, moves

    def begin(self, stage, own, moves, first, came):
        starts = [came if self.begun else self.split(first)[0]]
        for o, m in list(zip(self.split(own), self.split(moves)))[:-1]:
            starts.append(stage.after(o, m, starts[-1]))
        return self.merged(starts)

    def chain(self, stage, slopes, d, behind):
        """Gradients at the pieces' ends, then at the first one's start."""
        found = [behind]
        for m, own in zip(reversed(self.split(slopes)), reversed(
                self.split({n: d[n] for n in stage.states}))):
            found.insert(0, {n: t + own[n] for n, t in
                             stage.back(m, found[0]).items()})
        return found[1:], found[0]

    def back(self, stage, slopes, d):
        none = {n: torch.zeros_like(d[n][::self.n]) for n in stage.states}
        return self.chain(stage, slopes, d, none)[1] if self.begun else none

    def ends(self, stage, slopes, d, behind):
        return self.merged(self.chain(stage, slopes, d, behind)[0])

    def given(self, t):
        """Those of the other pieces are nobody's."""
        return t.zero_() if self.begun else t


def size_of(tensors):
    return sum(t.numel() * t.element_size() for t in tensors)


class Found:
    """What one level's stages have told: per stage, this rank's own, M and
    start, and, where all were gathered, those of every rank."""

    def __init__(self, line, level, parts):
        self.line, self.level, self.parts = line, level, parts
        self.inside = []                # slopes of this rank's rows, by stage
        tensors = [t for own, moves in parts
                   for t in (*own.values(), *moves.values())]
        state = [t for own, _ in parts for t in own.values()]
        self.way = line.way(size_of(state), size_of(tensors) - size_of(state))
        self.came = (self.ring if self.way == "ring" else self.gathered)(
            tensors, state)

    def named(self, tensors):
        """A flat list as (own, M) per stage; or own alone."""
        left, found = iter(tensors), []
        for own, moves in self.parts:
            found.append(tuple({n: next(left) for n in d}
                               for d in (own, moves)))
        return found

    def states(self, tensors):
        left = iter(tensors)
        return [{n: next(left) for n in own} for own, _ in self.parts]

    def after(self, parts, s):
        return [stage.after(own, moves, t) for stage, (own, moves), t
                in zip(self.level, parts, s)]

    def zeros(self):
        return [{n: torch.zeros_like(t) for n, t in own.items()}
                for own, _ in self.parts]

    def gathered(self, tensors, state):
        self.all = [self.named(unflat(t, tensors)) for t
                    in self.line.gather(flat(tensors))]
        s = self.zeros()
        for i in range(self.line.rank):
            s = self.after(self.all[i], s)
        return s

    def ring(self, tensors, state):
        s, line = self.zeros(), self.line
        if line.rank:
            s = self.states(unflat(line.receive(flat(state), line.rank - 1),
                                   state))
        if line.rank + 1 < line.n:
            ends = self.after(self.parts, s)
            line.send(flat([t for d in ends for t in d.values()]),
                      line.rank + 1)
        return s

    # ---- the way back: slopes are those at this rank's own start ----

    def slopes(self):
        return [stage.slopes(own, moves, s) for stage, (own, moves), s
                in zip(self.level, self.parts, self.came)]

    def behind(self, d):
        """The gradients at what goes on from here, of the ranks behind, where
        d are those at what came here, of this rank's own."""
        state = [t for s in d for t in s.values()]
        return (self.ring_back if self.way == "ring"
                else self.gathered_back)(d, state)

    def before(self, slopes, own, d):
        return [{n: t + own_d[n] for n, t in stage.back(m, s).items()}
                for stage, m, own_d, s in zip(self.level, slopes, own, d)]

    def gathered_back(self, d, state):
        line, turns = self.line, []
        for stage, m in zip(self.level, self.slopes()):
            turns += m.values() if stage.carry == "max" else ()
        d = self.zeros()
        all = [unflat(t, state + turns) for t
               in line.gather(flat(state + turns))]
        for i in reversed(range(line.rank + 1, line.n)):
            left = iter(all[i][len(state):])
            slopes = [{n: next(left) for n in m} if stage.carry == "max"
                      else m for stage, (_, m) in zip(self.level, self.all[i])]
            d = self.before(slopes, self.states(all[i][:len(state)]), d)
        return d

    def ring_back(self, own, state):
        line, d = self.line, self.zeros()
        if line.rank + 1 < line.n:
            d = self.states(unflat(line.receive(flat(state), line.rank + 1),
                                   state))
        if line.rank:
            before = self.before(self.slopes(), own, d)
            line.send(flat([t for s in before for t in s.values()]),
                      line.rank - 1)
        return d


def is_alone(variant):
    """Whether one stage is all of it."""
    return all(stage.variant is variant for level in stages(variant)
               for stage in level)


class Part:
    """This rank's part of a call: what it starts from. saving: one that saves
    follows; where one stage is all of it, that one is begun by its summary."""

    def __init__(self, variant, line, rows, chunk, first, x, saving=False):
        self.variant, self.line, self.rows = variant, line, rows
        self.chunk, self.levels = chunk, []
        self.start, self.begun = {}, None
        if saving and x[0].is_cuda and is_alone(variant):
            self.begun = Request(SAVING, x, (), rows.cu, chunk, final=True,
                                 in_parts=True)
        names = [a.name for a in variant.states]
        first = dict(zip(names, first))
        for level in stages(variant):
            self.find(level, first, x)
        self.s0 = [self.start[n] for n in names]

    def find(self, level, first, x):
        """The starts of a level's states."""
        rows, known, parts = self.rows, [], []
        for stage in level:
            own, moves = stage.summary(
                x, self.start, rows.cu, self.chunk, self.begun)
            begin = {}
            for n, t in own.items():
                s = first.get(n)
                begin[n] = torch.zeros_like(t) if s is None else s.to(t.dtype)
            known.append((own, moves, begin))
            parts.append(rows.carried(stage, own, moves, begin))
        found = Found(self.line, level, parts)
        self.levels.append(found)
        for stage, (own, moves, begin), came in zip(level, known, found.came):
            start = rows.begin(stage, own, moves, begin, came)
            for n, t in start.items():
                self.start[n] = t.contiguous()
            found.inside.append(stage.slopes(own, moves, start))

    def forward(self, mode, x):
        r = Request(mode, x, self.s0, self.rows.cu, self.chunk, final=True,
                    in_parts=self.begun is not None)
        if self.begun and self.begun.saved is not None:
            r.saved, r.note, r.begun = self.begun.saved, self.begun.note, True
        return r, run(self.variant, r)


class Backward:
    """Gradients of a part, found from the last level to the first. The run for
    those at the last level's starts begins that for all of them."""

    def __init__(self, part, x, saved, note, dy, ds):
        self.part, self.x, self.dy = part, x, contiguous(dy)
        self.saved, self.note, self.first = saved, note, None
        self.names = [a.name for a in part.variant.states]
        self.ds = dict(zip(self.names, ds))

    def run(self, ds, want):
        p, first = self.part, self.first
        r = Request(
            _c.BACKWARD, self.x, p.s0, p.rows.cu, p.chunk, dy=self.dy,
            ds=[ds[n] for n in self.names], want=want, saved=self.saved,
            note=self.note, in_parts=p.begun is not None)
        if first is None:
            r.begins = self.saved is not None and self.x[0].is_cuda
            self.first = r
        elif first.room is not None:
            r.begun, r.note = True, first.note
            r.place, r.room = first.place, first.room
        return run(p.variant, r)

    def ends(self, level, d):
        """The gradients behind this rank at all rows' ends, by name; d: those
        at their starts, of this rank's own."""
        rows, found = self.part.rows, {}
        own = [rows.back(stage, slopes, d) for stage, slopes
               in zip(level.level, level.inside)]
        for stage, slopes, t in zip(level.level, level.inside,
                                    level.behind(own)):
            found.update(rows.ends(stage, slopes, d, t))
        return found

    def all(self):
        """Of each input, of each start."""
        *lower, last = self.part.levels
        n, m = len(self.x), len(self.names)
        top = {s for stage in last.level for s in stage.states}
        want = (False,) * n + tuple(s in top for s in self.names)
        d = dict(zip([s for s in self.names if s in top],
                     self.run(self.ds, want)))
        ds = dict(self.ds)
        for s, t in self.ends(last, d).items():
            ds[s] = t if ds[s] is None else ds[s] + t
        *dx, = self.run(ds, (True,) * (n + m))
        dx, d = dx[:n], dict(zip(self.names, dx[n:]))
        for level in reversed(lower):
            ends = self.ends(level, d)
            for stage in level.level:
                self.add(stage, ends, dx, d)
        return dx, [self.part.rows.given(d[s]) for s in self.names]

    def add(self, stage, ends, dx, d):
        """What the stage's own step makes of the gradients at its ends."""
        v, p = stage.variant, self.part
        mine = {s: p.start[s] for s in (*stage.states, *stage.needs)}
        s0 = stage.order(mine)
        ds = stage.order({s: ends[s].contiguous() for s in stage.states})
        want = [a.name in mine for a in v.states]
        found = run(v, Request(_c.BACKWARD, self.x, s0, p.rows.cu, p.chunk,
                               dy=stage.no_gradient(self.x, p.rows.cu), ds=ds,
                               want=(True,) * len(dx) + tuple(want)))
        for i in range(len(dx)):
            dx[i] = dx[i] + found[i]
        left = iter(found[len(dx):])
        for a, w in zip(v.states, want):
            if w:
                d[a.name] = d[a.name] + next(left)


class Across(torch.autograd.Function):
    @staticmethod
    def forward(ctx, variant, line, rows, chunk, n, *tensors):
        x, first = list(tensors[:n]), tensors[n:]
        ctx.part = Part(variant, line, rows, chunk, first, x, saving=True)
        r, found = ctx.part.forward(SAVING, x)
        ctx.save_for_backward(*x, r.saved)
        ctx.rest = r.note, first, found[0].new_zeros(()).expand(
            found[0].shape)
        ctx.set_materialize_grads(False)
        return tuple(found)

    @staticmethod
    def backward(ctx, dy, *ds):
        *x, saved = ctx.saved_tensors
        note, first, zeros = ctx.rest
        dy = zeros.contiguous() if dy is None else dy
        dx, d = Backward(ctx.part, x, saved, note, dy, ds).all()
        d = [None if s is None else t.to(s.dtype) for s, t in zip(first, d)]
        return (None,) * 5 + (*dx, *d)


def call(variant, line, rows, chunk, first, x, pieces=None):
    """y and the states behind it, of this rank's rows; differentiable where
    anything asks for it. pieces: in how many batch entries are cut."""
    timed = [t for a, t in zip(variant.inputs, x) if a.timed]
    batch, tokens = timed[0].shape[:2]
    if rows.packed or tokens <= CHUNK or any(
            t.shape[:2] != (batch, tokens) for t in timed):
        pieces = 1
    elif pieces is None:
        pieces = best_pieces(variant, timed, x, learns([*x, *first]))
    if pieces < 2:
        return called(variant, line, rows, chunk, first, x)
    rows = Pieces(rows.begun, batch, tokens, pieces)
    y, *ends = called(
        variant, line, rows, chunk,
        [None if s is None else in_front(s, rows.n) for s in first],
        joined(variant, x))
    return y.view(batch, tokens, *y.shape[2:]), *(
        t.unflatten(0, (batch, rows.n))[:, -1] for t in ends)


def learns(tensors):
    return torch.is_grad_enabled() and any(
        t is not None and t.requires_grad for t in tensors)


def joined(variant, x):
    """The inputs with all batch entries one behind the other."""
    return [t.reshape(1, t.shape[0] * t.shape[1], *t.shape[2:]) if a.timed
            else t for a, t in zip(variant.inputs, x)]


def predicted(variant, x, rows, back):
    """Seconds of a part's calls; 0: that is not known."""
    r = Request(_c.FORWARD, x, (), rows.cu, in_parts=True)
    return run(variant, r, lambda caller, door, r:
               caller.seconds(door, r, back))


def best_pieces(variant, timed, x, back):
    """As many as are predicted to take least, none of them short, with a
    processor for each head of each; where that is not known, as many as have
    one, or where states go through a matrix, and gradients back, two. On a CPU
    one."""
    t = timed[0]
    if not t.is_cuda:
        return 1
    heads = max(x.shape[2] for x in timed) * t.shape[0]
    processors = torch.cuda.get_device_properties(
        t.device).multi_processor_count
    most = min(processors // heads, t.shape[1] // LEAST)
    key = back, t.device, *((t.shape, t.dtype) for t in timed)
    known = variant.__dict__.setdefault("_pieces", {})
    if key not in known:
        known[key] = find_pieces(variant, x, most, back, *t.shape[:2])
    return known[key]


def find_pieces(variant, x, most, back, batch, tokens):
    if is_alone(variant):
        x = joined(variant, [t.detach() for t in x])
        seconds = {n: predicted(variant, x, Pieces(False, batch, tokens, n),
                                back) for n in range(1, most + 1)}
        least = min(seconds.values(), default=0)
        if least:
            return max(n for n in seconds if seconds[n] <= ALIKE * least)
    matrix = any(stage.carry == "matrix" for level in stages(variant)
                 for stage in level)
    return most // 2 if back and matrix else most


def in_front(s, n):
    """Of each batch entry's n pieces the first one starts from it."""
    rest = torch.zeros_like(s).unsqueeze(1).expand(-1, n - 1,
                                                   *s.shape[1:])
    return torch.cat([s.unsqueeze(1), rest], 1).flatten(0, 1)


def called(variant, line, rows, chunk, first, x):
    """The call, by rows as they are."""
    if learns([*x, *first]):
        return Across.apply(variant, line, rows, chunk, len(x), *x, *first)
    part = Part(variant, line, rows, chunk, first, x)
    return part.forward(_c.FORWARD, x)[1]


class Packing:
    """Which of packed sequences are this rank's, wherever parts begin.
    cu: the ends of all of them; lengths: the tokens of each rank."""

    def __init__(self, cu, lengths, line, t):
        cu = [int(i) for i in cu]
        if lengths is None:
            lengths = [t] * line.n
        if len(lengths) != line.n or lengths[line.rank] != t:
            raise Error(f"lengths = {lengths}: of {line.n} ranks this one, "
                        f"{line.rank}, has {t} tokens")
        if cu[-1] != sum(lengths):
            raise Error(f"cu_seqlens ends at {cu[-1]}, but the ranks have "
                        f"{sum(lengths)} tokens\n  help: cu_seqlens of the "
                        "whole, and lengths=[...] where parts differ")
        begin = sum(lengths[:line.rank])
        end, last = begin + t, line.rank == line.n - 1
        self.n = len(cu) - 1
        self.first = next(i for i in range(self.n + 1)
                          if i == self.n or cu[i + 1] > begin
                          or cu[i] >= begin)
        self.to = next((i for i in range(self.first, self.n)
                        if cu[i] >= end and not last), self.n)
        ends = [min(max(i, begin), end) - begin
                for i in cu[self.first:self.to + 1]]
        self.cu = torch.tensor(ends)
        self.rows = Rows(self.cu, cu[self.first] < begin)
        self.before = begin - cu[self.first]    # tokens of the first one
        self.ended = [i for i in range(self.first, self.to)
                      if cu[i + 1] <= end]

    def own(self, s):
        """This rank's rows of what all sequences start from."""
        return None if s is None else s[self.first:self.to]

    def spread(self, s):
        """The states of those that end here, among all; others are zero."""
        at = [i - self.first for i in self.ended]
        full = s.new_zeros((self.n, *s.shape[1:]))
        return full.index_copy(0, torch.tensor(self.ended, dtype=torch.long,
                                                 device=s.device),
                               s[at])
