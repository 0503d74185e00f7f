"""Calls: the structs of flin.h, made once for tensors of one signature and
filled with pointers from then on.

A **door** is the module that knows the caller's tensors (_numpy, _torch):
  signature(tensors)    what a call depends on, beside the data; hashable
  describe(name, t)     its dtype (flin.h's), shape and strides in elements
  pointer(t)            where its data is
  is_plain(t)           whether its memory holds its numbers
  contiguous(t)         its numbers, row-major
  empty(shape, dtype, like), empty_like(t), space(bytes, like)  new tensors;
                        empty_like only of row-major ones, or, where the
                        door keeps_order, of dense ones
  runs(tensors)         where r.beside: those of one memory that lie one
                        behind another, as lists of their places
  row(parts, dtype, like)       new tensors that lie so: (shape, strides) each
  check(name, t, first) raises where two cannot go together
  ends(cu, like)        cu_seqlens as a tensor of int64
  index(i, like)        state_index as a tensor where the others are
  pools(tensors)        raises where something else than the call follows them
  written(t)            says that the call has written to it
  place(call, like, cu) sets device, stream, cu_seqlens
"""
import ctypes
import numbers
from ctypes import byref

from . import _c, _state
from ._c import lib

SIGNATURES = 256                # that a variant remembers
ALIGNMENT = 256                 # of workspace and what is saved
EMPTY = ctypes.create_string_buffer(2 * ALIGNMENT)
# The data of tensors without elements, and of what is not looked at.
NOWHERE = ctypes.addressof(EMPTY) + -ctypes.addressof(EMPTY) % ALIGNMENT
SAVING = -1                     # the mode of a forward call that saves
# Where an input is float64: the float64 step.
EXACT = {_c.FORWARD: _c.REFERENCE, SAVING: _c.REFERENCE,
         _c.STEP: _c.REFERENCE, _c.BACKWARD: _c.REFERENCE_BACKWARD}


class Request:
    """A call's arguments, in the variant's order, None where absent. mode:
    FORWARD, BACKWARD, STEP or REFERENCE, or SAVING, which is FORWARD and
    leaves in `saved`, if it can, what spares BACKWARD the way forward, and in
    `note` of which call it is.
    chunk: 0 for flin's choice. Forward:
    `final` asks for the states, `inplace` writes them where the initial ones
    are. Backward: dy (of y, or one for each result) and ds come in, and
    `want` says of which inputs, then of which initial states, the gradients
    are wanted; `into` has, for each input, the tensor that its gradient is
    added to, or None; `over` says of which the gradient is written over them.
    beside: gradients of weights lie one behind another where the weights do.
    validate: as flin.h has it. index: which entries of s0, which are pools,
    the states are. begun: what is SAVING goes on from where Caller.summary of a
    request with its inputs has begun it, whose `saved` and `note` it has; what
    is BACKWARD from one for gradients at starts alone that `begins`, whose
    `note`, `place` and `room` it has. in_parts: of all calls of a part of a
    sequence, so that their kernels go together. spend: no other call reads
    `saved` again."""
    __slots__ = ("mode", "x", "s0", "cu", "chunk", "final", "inplace", "dy",
                 "ds", "want", "saved", "note", "validate", "into", "over",
                 "index", "begun", "begins", "place", "room", "beside",
                 "in_parts", "spend")

    def __init__(self, mode, x, s0=(), cu=None, chunk=0, final=False,
                 inplace=False, dy=None, ds=(), want=(), saved=None,
                 note=None, validate=0, into=(), over=(), index=None,
                 begun=False, beside=False, in_parts=False,
                 spend=False):
        self.mode, self.x, self.s0, self.cu = mode, x, s0, cu
        self.chunk, self.final, self.inplace = chunk, final, inplace
        self.dy = dy if isinstance(dy, (list, tuple)) else (dy,)
        self.ds, self.want = ds, want
        self.saved, self.note, self.validate = saved, note, validate
        self.into, self.over, self.index = into, over, index
        self.begun, self.begins, self.place, self.room = begun, False, 0, None
        self.beside, self.in_parts, self.spend = beside, in_parts, spend


class Kernel:
    """A flin_Kernel; shared between threads."""

    def __init__(self, handle):
        self.handle = handle
        self.free = lib.free    # at exit, modules may go first
        note = lib.kernel_note(handle)
        self.note = note.decode() if note else None

    def __del__(self):
        self.free(self.handle)


class Frame:
    """The structs of one call, in one piece of memory. groups: a field of
    flin_Call or (d...) of flin_Grad with its tensors: (name, dtype, shape,
    strides). slots: which 8 bytes of `words` point to a tensor's data."""
    __slots__ = ("memory", "used", "words", "slots", "call", "grad", "saved",
                 "error", "call_at", "grad_at", "error_at")

    def __init__(self, groups, nseq, chunk=0, plan=None, checkpoint=False,
                 in_parts=False, spend=False, memory=0):
        structs = _c.Call, _c.Grad, _c.Saved, _c.ErrorText
        self.memory, self.used, self.slots = bytearray(
            sum(map(ctypes.sizeof, structs)) + ctypes.sizeof(_c.Bind)
            * sum(len(tensors) for _, tensors in groups)), 0, []
        self.words = memoryview(self.memory).cast("Q")
        self.call, self.grad, self.saved, self.error = map(self.make, structs)
        self.call.size, self.grad.size = map(ctypes.sizeof, structs[:2])
        self.call.nseq, self.call.chunk = nseq, chunk
        self.call.plan = plan and plan.encode()
        self.call.checkpoint, self.call.in_parts = checkpoint, in_parts
        self.call.spend, self.call.memory = spend, memory
        for field, tensors in groups:
            self.add(self.grad if field[0] == "d" else self.call, field,
                     tensors)
        backward = any(field[0] == "d" for field, _ in groups)
        self.call_at, self.error_at = map(ctypes.addressof, (self.call,
                                                             self.error))
        self.grad_at = ctypes.addressof(self.grad) if backward else None

    def make(self, kind):
        found = kind.from_buffer(self.memory, self.used)
        self.used += ctypes.sizeof(kind)
        return found

    def add(self, struct, field, tensors):
        if field in ("y", "dy", "state_index"):
            slots = [getattr(struct, field)] * len(tensors)
        else:
            array = self.make(_c.Bind * len(tensors))
            for bind, tensor in zip(array, tensors):
                bind.name = tensor[0]
            setattr(struct, field, array)
            count = "ninputs" if field == "input" else "n" + field
            setattr(struct, count, len(tensors))
            slots = [bind.tensor for bind in array]
        start = ctypes.addressof(self.call)
        for slot, (_, dtype, shape, stride) in zip(slots, tensors):
            slot.data, slot.dtype, slot.rank = NOWHERE, dtype, len(shape)
            slot.shape[:len(shape)] = shape
            slot.stride[:len(shape)] = stride
            self.slots.append((ctypes.addressof(slot) - start) // 8)


class Prepared:
    """A kernel, and what its calls look like for one signature. results: of
    each that is to be made, its shape and dtype, and which given tensor is
    like it, or None. truth: it is the variant's own function's, which runs in
    its flin_State. rows: which results lie one behind another."""
    __slots__ = ("kernel", "like", "results", "workspace", "saved", "changed",
                 "truth", "frames", "rows")

    def __init__(self, kernel, like, results, workspace, saved, changed,
                 truth, rows):
        self.truth, self.rows = truth, rows
        self.kernel, self.like, self.results = kernel, like, results
        self.workspace, self.saved = workspace, saved   # in bytes
        self.changed = changed  # which of the given tensors are copied
        self.frames = []        # that no call uses at the moment

    def frame(self):
        try:
            return self.frames.pop()
        except IndexError:
            frame = Frame(*self.like)
        if self.saved:
            frame.call.saved = ctypes.pointer(frame.saved)
        return frame


def row_major(shape):
    strides, n = [], 1
    for size in reversed(shape):
        strides.append(n)
        n *= size
    return tuple(reversed(strides))


def is_dense(shape, strides):
    """Whether a tensor has all of its memory, its axes in any order."""
    n = 1
    for stride, size in sorted(zip(strides, shape)):
        if size != 1 and stride != n:
            return False
        n *= size
    return True


def gradient_strides(a, shape, strides):
    """Of argument a's gradient: a weight's is laid as that is, so that an
    optimiser's sums take it as it comes."""
    weight = not getattr(a, "timed", True)
    return strides if weight and is_dense(shape, strides) else row_major(shape)


def overlaps(shape, strides):
    """Whether elements share a place, as those of expanded tensors do."""
    return any(n > 1 and not s for n, s in zip(shape, strides))


def all_zero(shape, strides):
    """Strides that flin.h would read as row-major, of one repeated number."""
    return not any(strides) and any(n > 1 for n in shape)


def nowhere(t):
    """The place of a tensor's data that has none."""
    if 0 in t.shape:
        return NOWHERE
    raise _c.Error(f"a tensor of shape {list(t.shape)} has no memory: what it "
                   "lay in has been freed")


def likened(results, given):
    """The results, each with a given tensor that it is like. They are
    row-major, or laid as they say."""
    rows = {t: i for i, t in enumerate(given) if is_dense(*t[1:])}
    found = []
    for shape, dtype, *strides in results:
        strides = strides[0] if strides else shape and row_major(shape)
        found.append((shape, dtype, rows.get((dtype, shape, strides))))
    return found                                # shape None: it is given


def is_taken(door, t, shape, strides):
    """Whether a call takes the tensor as it is."""
    return door.is_plain(t) and not all_zero(shape, strides)


def describe_one(door, name, t):
    """As the call takes it."""
    dtype, shape, strides = door.describe(name, t)
    if len(shape) > _c.RANK:
        raise _c.Error(f"{name} has {len(shape)} dimensions: at most "
                       f"{_c.RANK} are possible")
    return dtype, shape, (strides if is_taken(door, t, shape, strides)
                          else row_major(shape))


def wrong_kind(name, value, first, wanted, make):
    """The error for what is no array of the door's."""
    if isinstance(value, numbers.Number):   # NumPy's scalars are, too
        return _c.Error(f"{name} is the number {value}: {wanted} is wanted, "
                        f"of all its axes\n  help: {make.format(value)}")
    return _c.Error(f"{name} is {type(value).__name__}, but {first} is "
                    f"{wanted}: all must be of one kind")


def describe(door, arguments, tensors):
    return [(a.name.encode(), *describe_one(door, a.name, t))
            for a, t in zip(arguments, tensors) if t is not None]


def changes(door, given):
    """Which given tensors a call takes a copy of."""
    return [i for i, t in enumerate(given)
            if not is_taken(door, t, *door.describe("", t)[1:])]


def placed(r):
    """For each input the tensor that its gradient goes to, or None; () where
    there are none."""
    if not r.over:
        return r.into
    return [x if over else into for x, over, into
            in zip(r.x, r.over, r.into or [None] * len(r.x))]


class Caller:
    """Runs the calls of one variant on one device. plan, checkpoint, memory:
    as flin.h has them."""

    def __init__(self, handle, inputs, states, outputs, plan=None,
                 checkpoint=False, memory=0):
        self.handle, self.inputs, self.states = handle, inputs, states
        self.outputs, self.plan = outputs, plan
        self.checkpoint, self.memory = checkpoint, memory
        self.prepared, self.kernels = {}, {}

    def run(self, door, r):
        """As the door's tensors: the results, y first, and (where r.final) the
        final states, or the gradients that are wanted."""
        if r.cu is not None:
            r.cu = door.ends(r.cu, r.x[0])
        given, present = r.x, None
        sums = [t for t in placed(r) if t is not None]
        if r.s0 or r.mode == _c.BACKWARD:
            given = [*given, *r.s0, *r.dy, *r.ds, r.index]
            present = (len(r.s0), *[t is not None for t in given])
            given = [t for t in given if t is not None]
        try:
            key = (r.mode, r.chunk, r.final, r.inplace, r.want, r.over,
                   r.saved is None, r.beside, r.in_parts, r.spend, present,
                   None if r.cu is None else tuple(door.signature((r.cu,))),
                   *door.signature(given), *door.signature(sums))
        except (AttributeError, TypeError, RuntimeError):
            self.check(door, r)     # not all are the door's tensors
            raise
        p = self.prepared.get(key)
        if p is None:
            p = self.prepare(door, r, key)
        first = r.x[0]
        sums = iter(sums)
        rows = {}
        for places, parts, dtype in p.rows:
            rows.update(zip(places, door.row(parts, dtype, first)))
        results = [next(sums) if shape is None
                   else rows[i] if i in rows
                   else door.empty(shape, dtype, first) if like is None
                   else door.empty_like(given[like])
                   for i, (shape, dtype, like) in enumerate(p.results)]
        self.launch(door, r, p, given, results)
        return results + list(r.s0) if r.inplace else results

    def launch(self, door, r, p, given, results):
        frame, first = p.frame(), r.x[0]
        if p.changed:
            given = list(given)
            for i in p.changed:
                given[i] = door.contiguous(given[i])
        tensors = [*given, *results, *r.s0] if r.inplace else given + results
        words, pointer = frame.words, door.pointer
        for at, t in zip(frame.slots, tensors):
            words[at] = pointer(t) or nowhere(t)
        call = frame.call
        room = r.room if r.room is not None and len(r.room) >= p.workspace \
            else None
        call.validate, call.begins = r.validate, r.begins and p.workspace > 0
        call.begun = r.begun and (r.mode == SAVING or room is not None)
        frame.grad.add = bool(r.into)
        door.place(call, first, r.cu)
        if p.workspace:
            space = door.space(p.workspace, first) if room is None else room
            if r.begins:
                r.room = space
            call.workspace = pointer(space)
            call.workspace_size = p.workspace
        if p.saved:
            saved = frame.saved
            if r.saved is None:
                r.saved, saved.bytes = door.space(p.saved, first), p.saved
            else:
                (saved.plan, saved.call), saved.place = r.note, r.place
                saved.bytes = len(r.saved)
            saved.data = pointer(r.saved)
        if p.truth:
            code = self.truth(p.truth, frame)
        else:
            code = lib.run(p.kernel.handle, frame.call_at, frame.grad_at,
                           frame.error_at)
        if code or _state.interrupts:
            _state.checked(code, frame.error)
        if p.saved and (r.note is None or r.begun or r.begins):
            r.note = saved.plan, saved.call
            r.place = saved.place if r.begins else 0
        p.frames.append(frame)

    def truth(self, mode, frame):
        """By the variant's own function: the code."""
        with _state.lock:
            if mode == _c.REFERENCE:
                return lib.reference(self.handle, frame.call_at,
                                     frame.error_at)
            return lib.reference_backward(self.handle, frame.call_at,
                                          frame.grad_at, frame.error_at)

    def note(self):
        """Why a call has gone token by token, or None."""
        notes = [kernel.note for kernel in self.kernels.values()]
        return next(filter(None, notes), None) or _state.note(self.handle)

    def prepare(self, door, r, key):
        """The kernel for this signature, and what its frames look like. Fails
        if the arguments do not go together."""
        self.check(door, r)
        mode = r.mode
        if any(door.describe(a.name, t)[0] == _c.F64
               for a, t in zip(self.inputs, r.x)):
            mode = EXACT.get(mode, mode)
        nseq = 0 if r.cu is None else len(r.cu) - 1
        if nseq < 0:
            raise _c.ArgumentError("cu_seqlens is empty: the ends of sequences"
                                   " are wanted, from 0 to T")
        groups = [("input", describe(door, self.inputs, r.x)),
                  ("initial", describe(door, self.states, r.s0))]
        if r.index is not None:
            groups.append(("state_index", [
                (b"state_index", *describe_one(door, "state_index",
                                               r.index))]))
        results = (self.made(door, r, groups, nseq, mode == _c.REFERENCE)
                   if r.mode != _c.BACKWARD
                   else self.gradients(door, r, groups, nseq))
        like = (groups, nseq, r.chunk, self.plan,
                self.checkpoint and r.mode == SAVING, r.in_parts,
                r.spend or r.mode == SAVING, self.memory)
        frame, saved = Frame(*like), 0
        door.place(frame.call, r.x[0], r.cu)
        if (mode == SAVING and not self.checkpoint) or r.saved is not None:
            saved = self.saved(groups, frame)
        if mode == SAVING:
            mode = _c.BACKWARD if saved else _c.FORWARD
        kernel = self.kernel(mode, groups, frame)
        workspace = max(lib.workspace(kernel.handle, frame.call_at), 0)
        if len(self.prepared) >= SIGNATURES:
            self.prepared.clear()
        given = [t for t in (*r.x, *r.s0, *r.dy, *r.ds, r.index)
                 if t is not None]
        p = Prepared(kernel, like, likened(results, [
            door.describe("", t) for t in given]), workspace, saved,
            changes(door, given),
            mode if mode in (_c.REFERENCE, _c.REFERENCE_BACKWARD)
            else None, self.rows(door, r, results) if r.beside else [])
        self.prepared[key] = p
        return p

    def check(self, door, r):
        """That the tensors go together."""
        first = self.inputs[0].name, r.x[0]
        if r.index is not None:
            door.check("state_index", r.index, *first)
        for arguments, tensors in ((self.inputs, r.x), (self.states, r.s0),
                                   (self.states, r.ds)):
            for a, t in zip(arguments, tensors):
                if t is not None:
                    door.check(a.name, t, *first)
        for name, t in zip(self.gradient_names(), r.dy):
            if t is not None:
                door.check(name, t, *first)

    def gradient_names(self):
        """Of what comes in: do, of several results do.NAME."""
        return ["do"] + [f"do.{o.name}" for o in self.outputs[1:]]

    def made(self, door, r, groups, nseq, exact):
        """What the results and the final states are like; added to the
        groups."""
        # what a call without a pool would give
        frame = Frame(groups if r.index is None else groups[:1], nseq)
        t, like = _c.Tensor(), []
        door.place(frame.call, r.x[0], r.cu)
        n = len(self.outputs)
        for i in range(n + r.final * len(self.states)):
            with _state.lock:
                code = lib.shape(self.handle, frame.call_at,
                                 len(self.inputs) + i, byref(t),
                                 frame.error_at)
            _state.checked(code, frame.error)
            like.append((tuple(t.shape[:t.rank]),
                         _c.F64 if exact else t.dtype))
        names = [a.name for a in (*self.outputs, *self.states)]
        if r.mode == _c.VERIFY and r.index is None:
            like[n:] = [((shape[0], like[0][0][1], *shape[1:]), dtype)
                        for shape, dtype in like[n:]]
        described = [(name.encode(), dtype, shape, row_major(shape))
                     for name, (shape, dtype) in zip(names, like)]
        groups += [("y", described[:1]), ("result", described[1:n]),
                   ("final", groups[1][1] if r.inplace else described[n:])]
        return like[:n] if r.inplace else like

    def summary(self, door, r):
        """What the tokens leave of states that are zero, of each state, then
        their transitions, as flin_summary has them. Of a request that is SAVING
        the call is begun, if it can be: then `saved` is there."""
        if r.cu is not None:
            r.cu = door.ends(r.cu, r.x[0])
        self.check(door, r)
        which, rank, axis = _state.transition(self.handle)
        nseq = 0 if r.cu is None else len(r.cu) - 1
        groups = [("input", describe(door, self.inputs, r.x)),
                  ("initial", describe(door, self.states, r.s0))]
        like = self.made(door, r, groups, nseq, False)[len(self.outputs):]
        which = [i - len(self.inputs) - len(self.outputs) for i in which]
        shapes = [like[i][0] for i in which]
        moves = shapes
        if axis is not None:
            size, rows = zip(*[(s[2 + self.states[i].axes.index(axis)],
                                s[:2]) for s, i in zip(shapes, which)])
            moves = [(*lead, n) if rank == 3 else (*lead, n, sum(size))
                     for lead, n in zip(rows, size)]
        first = r.x[0]
        own, to = [[door.empty(shape, _c.F32, first) for shape in some]
                   for some in (shapes, moves)]
        frame = Frame([*groups[:2], ("final", [groups[-1][1][i]
                                              for i in which])],
                      nseq, r.chunk, in_parts=r.in_parts)
        given = [t for t in (*r.x, *r.s0) if t is not None]
        changed = changes(door, given)
        given = [door.contiguous(t) if i in changed else t
                 for i, t in enumerate(given)]
        for at, t in zip(frame.slots, [*given, *own]):
            frame.words[at] = door.pointer(t) or nowhere(t)
        door.place(frame.call, first, r.cu)
        if r.mode == SAVING:
            self.begin(door, r, groups, frame)
        tensors = (_c.Tensor * len(to))()
        for t, x in zip(tensors, to):
            t.data, t.dtype, t.rank = door.pointer(x), _c.F32, len(x.shape)
            t.shape[:t.rank] = x.shape
            t.stride[:t.rank] = row_major(x.shape)
        with _state.lock:
            code = lib.summary(self.handle, frame.call_at, tensors,
                               frame.error_at)
        _state.checked(code, frame.error)
        if r.saved is not None:
            r.note = frame.saved.plan, frame.saved.call
        if not frame.saved.plan:
            r.saved = r.note = None
        return own + to

    def seconds(self, door, r, both_ways):
        """What such a call is predicted to take, forward or both ways; in
        parts, with its summary. 0: that is not known."""
        groups = [("input", describe(door, self.inputs, r.x)),
                  ("initial", describe(door, self.states, r.s0))]
        frame = Frame(groups, len(r.cu) - 1, r.chunk, in_parts=r.in_parts)
        r.cu = door.ends(r.cu, r.x[0])
        door.place(frame.call, r.x[0], r.cu)
        with _state.lock:
            found = lib.seconds(self.handle, both_ways, frame.call_at,
                                frame.error_at)
        return max(found, 0)            # what is wrong with it the call says

    def begin(self, door, r, groups, frame):
        """The room that the call keeps what it saves in."""
        size = self.saved(groups, frame)
        if size:
            r.saved = door.space(size, r.x[0])
            frame.saved.data, frame.saved.bytes = door.pointer(r.saved), size

    def gradients(self, door, r, groups, nseq):
        """What the wanted gradients are like; added to the groups, as are
        those that come in."""
        came = []
        if any(t is not None for t in r.dy):
            like = self.made(door, r, list(groups), nseq, False)
            for name, o, t, (shape, _) in zip(self.gradient_names(),
                                              self.outputs, r.dy, like):
                if t is None:
                    continue
                if tuple(t.shape) != shape:
                    raise _c.ArgumentError(
                        f"backward: {name} has shape {list(t.shape)}, but "
                        f"{list(shape)} is wanted")
                came.append((o.name.encode(), *describe_one(door, name, t)))
        first = len(came) and r.dy[0] is not None
        groups += [("dy", came[:first]), ("dresult", came[first:]),
                   ("dfinal", describe(door, self.states, r.ds))]
        results, n, places = [], len(self.inputs), placed(r)
        for field, arguments, tensors, want in (
                ("dinput", self.inputs, r.x, r.want[:n]),
                ("dinitial", self.states, r.s0, r.want[n:])):
            chosen = [t if w else None for t, w in zip(tensors, want)]
            group = []
            for i, (a, t) in enumerate(zip(arguments, chosen)):
                into = places[i] if field == "dinput" and places else None
                if t is None:
                    continue
                if into is not None:
                    group.append(self.sum_of(door, a, into, r.x[0]))
                    results.append((None, None))
                    continue
                dtype, shape, strides = describe_one(door, a.name, t)
                strides = (gradient_strides(a, shape, strides)
                           if door.keeps_order else row_major(shape))
                group.append((a.name.encode(), dtype, shape, strides))
                results.append((shape, dtype, strides))
            groups.append((field, group))
        return results

    def rows(self, door, r, results):
        """Which gradients of weights lie one behind another: their places among
        the results, their shapes and strides, and the dtype."""
        n, places = len(self.inputs), [i for i, w in enumerate(r.want) if w]
        weights = [(at, r.x[i]) for at, i in enumerate(places)
                   if i < n and not getattr(self.inputs[i], "timed", True)
                   and len(results[at]) == 3
                   and results[at][2] == tuple(r.x[i].stride())]
        found = []
        for run in door.runs([t for _, t in weights]):
            at = [weights[i][0] for i in run]
            found.append((at, [(results[i][0], results[i][2]) for i in at],
                          results[at[0]][1]))
        return found

    def sum_of(self, door, a, t, like):
        """What a gradient is added to, as the call takes it."""
        door.check(a.name, t, "x", like)
        dtype, shape, strides = door.describe(a.name, t)
        if not is_taken(door, t, shape, strides) or overlaps(shape, strides):
            raise _c.ArgumentError(f"backward: what the gradient of "
                                   f"{a.name} goes to is not a tensor of "
                                   "numbers of its own")
        return a.name.encode(), dtype, shape, strides

    def saved(self, groups, frame):
        """The bytes that forward leaves for backward."""
        kernel = self.kernel(_c.BACKWARD, groups, frame)
        size = max(lib.kernel_saved(kernel.handle, frame.call_at), 0)
        if size:
            frame.saved.data = NOWHERE
            frame.call.saved = ctypes.pointer(frame.saved)
        return size

    def kernel(self, mode, groups, frame):
        """Kernels are shared between calls that differ in B, T and heads; one
        that goes backwards, between all that have its inputs."""
        axes = {a.name.encode(): len(a.axes)
                for a in (*self.inputs, *self.states)}
        key = str((mode, frame.call.chunk, 
                   frame.call.checkpoint and mode != _c.BACKWARD, [
            (field, name, dtype, shape[len(shape) - axes.get(name, 0):])
            for field, tensors in groups[:2 if mode == _c.BACKWARD else None]
            for name, dtype, shape, _ in tensors]))
        kernel = self.kernels.get(key)
        if kernel is None:
            with _state.lock:
                handle = lib.prepare(self.handle, mode, frame.call_at,
                                     frame.error_at)
            _state.checked(0 if handle else frame.error.code or _c.INTERNAL,
                           frame.error)
            kernel = self.kernels[key] = Kernel(handle)
            _state.say()
        return kernel
