"""Variants: what flin.load gives, and how it is called."""
import difflib
import math

from . import _c, _state
from ._c import lib
from ._calls import Caller, Request

OPTIONS = ("initial_state", "state", "output_final_state", "cu_seqlens",
           "scale", "use_qk_l2norm_in_kernel", "chunk", "validate", "inplace",
           "do", "dstate")


def door_of(name, tensor):
    """The module for this kind of tensor."""
    door = DOORS.get(type(tensor))
    if door is not None:
        return door
    kinds = [k.__module__.partition(".")[0] for k in type(tensor).__mro__]
    if "torch" in kinds:
        from . import _torch as door
    elif "numpy" in kinds and hasattr(tensor, "__array_interface__"):
        from . import _numpy as door
    else:
        raise _c.ArgumentError(f"{name} is {type(tensor).__name__}: a torch."
                               "Tensor or a NumPy array is wanted")
    DOORS[type(tensor)] = door
    return door


DOORS = {}
VARIANTS = {}                   # as loaded, by key: compiled graphs hold keys


def register(variant, origin):
    """Gives it a key, and keeps it. origin: what it was loaded from."""
    variant.origin = origin
    variant.key = f"{variant.name}#{len(VARIANTS)}"
    VARIANTS[variant.key] = variant
    return variant


class Variant:
    """A variant, called as flash-linear-attention's functions are:

        o, state = gdn(q, k, v, g=g, beta=beta, initial_state=s0,
                       cu_seqlens=cu, output_final_state=True)

    Tensors are [B, T, H, ...], inputs without t [H, ...], states [N, H, ...]
    (N: batch entries or sequences). q, k, v may be given by position, all
    others by name. The state is a tensor where the variant has one, else a
    dict by name; None unless output_final_state. Float64 is computed by the
    float64 step, on the CPU.

    inputs, output and states say what it takes and gives: each has a name,
    axes (behind batch, tokens and heads), a domain ("log_decay": <= 0 ...)
    and whether it is per token, `timed`. It cannot be changed, so that a copy
    is itself."""

    def __init__(self, source, open_on):
        self.source, self.open_on = source, open_on
        self.release, self.callers = _state.release, {}
        handle = open_on("cpu")
        self.name = lib.name(handle).decode()
        arguments = _state.arguments(handle)
        self.inputs = [a for a in arguments if a.role == _c.INPUT]
        self.states = [a for a in arguments if a.role == _c.STATE]
        self.output = arguments[len(self.inputs)]
        self.order = {a.name: i for i, a in enumerate(self.inputs)}
        self.by_position = [n for n in ("q", "k", "v") if n in self.order]
        self.layouts = [self._layout(n)
                        for n in range(len(self.by_position) + 1)]
        self.callers["cpu"] = Caller(handle, self.inputs, self.states)
        sizes = {axis: _state.axis_size(handle, axis)
                 for a in arguments for axis in a.axes}
        self.sizes = sizes      # of axes; 0: the tensors say
        self.mapped, self._proportional = {}, None
        taken = [n for n in OPTIONS if n in self.order]
        if taken:
            raise _c.Error(f"{self.name}: input '{taken[0]}': that name is an "
                           "option of calls from Python")

    def __del__(self):
        for caller in self.callers.values():
            self.release(caller.handle)

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        return self

    def __reduce__(self):
        from . import load
        return load, (self.origin,)

    def _caller(self, device):
        """What runs the calls on this device."""
        found = self.callers.get(device)
        if found is None:
            found = self.callers[device] = Caller(
                self.open_on(device), self.inputs, self.states)
        return found

    @property
    def form(self):
        """How each state goes on, and whether calls run in chunks or token by
        token, and why: lines of text."""
        return _state.form(self.callers["cpu"].handle)

    def __repr__(self):
        road = self.form.rstrip().rpartition("\n")[2].strip()
        return (f"flin.load({self.source!r})  # "
                f"inputs {', '.join(map(repr, self.inputs))}; "
                f"states {', '.join(map(repr, self.states))}; {road}")

    # ---- arguments ----

    def _layout(self, n):
        """Of calls with n inputs by position: the names of the others, and
        where each input is among all; None: where it belongs."""
        first = self.by_position[:n]
        rest = [name for name in self.order if name not in first]
        places = [(first + rest).index(name) for name in self.order]
        return rest, None if places == sorted(places) else places

    def _take_inputs(self, args, named):
        """The inputs in the variant's order."""
        if len(args) >= len(self.layouts):
            raise self._misfit(args, named)
        rest, places = self.layouts[len(args)]
        x = [*args, *map(named.get, rest)]
        if len(named) != len(rest) or any([t is None for t in x]):
            raise self._misfit(args, named)
        return x if places is None else [x[i] for i in places]

    def _misfit(self, args, named):
        """What is wrong with a call's inputs."""
        if len(args) > len(self.by_position):
            may = (f"only {', '.join(self.by_position)} may be; the others by "
                   "name" if self.by_position else "all go by name: "
                   + ", ".join(f"{n}={n}" for n in self.order))
            return _c.ArgumentError(
                f"{self.name}: {len(args)} argument{'s' * (len(args) > 1)} by "
                f"position: {may}")
        found = dict(zip(self.by_position, args))
        for name, tensor in named.items():
            if name in found:
                return _c.ArgumentError(f"{self.name}: {name} is given twice")
            if name not in self.order:
                return self._unknown(name)
            found[name] = tensor
        missing = [n for n in self.order if found.get(n) is None]
        return _c.ArgumentError(
            f"{self.name}: {', '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} missing; inputs: "
            f"{', '.join(self.order)}")

    def _unknown(self, name):
        names = *self.order, *OPTIONS
        near = (difflib.get_close_matches(name, names, 1, 0.75)
                or [n for n in names if name.startswith(n)])
        help = f"did you mean '{near[0]}'? " if near else ""
        return _c.ArgumentError(
            f"{self.name}: there is no argument '{name}'\n  help: {help}"
            f"inputs: {', '.join(self.order)}")

    def _take_states(self, what, state):
        """A tensor or a dict as a list in the variant's order; None: none."""
        if state is None:
            return []
        if not isinstance(state, dict):
            if len(self.states) != 1:
                names = ", ".join(s.name for s in self.states)
                raise _c.ArgumentError(
                    f"{self.name}: {what}: a dict is wanted, as there are "
                    f"several states: {names}")
            return [state]
        unknown = set(state) - {s.name for s in self.states}
        if unknown:
            names = ", ".join(s.name for s in self.states)
            raise _c.ArgumentError(
                f"{self.name}: {what}: there is no state '{unknown.pop()}'; "
                f"states: {names or 'none'}")
        return [state.get(s.name) for s in self.states]

    def _give_states(self, states):
        if len(self.states) == 1:
            return states[0]
        return {s.name: t for s, t in zip(self.states, states)}

    # ---- what the step is of ----

    def _query(self):
        """The input that `scale` multiplies: q, or r."""
        for name in ("q", "r"):
            if name in self.order:
                return name
        raise _c.Error(f"{self.name}: scale: there is no input q or r to "
                       f"scale; inputs: {', '.join(self.order)}")

    def _through(self, scale, norm, x):
        """The variant whose q is scaled, and whose q and k are normalised,
        before the step. scale None: K^-1/2 where y is proportional to q."""
        if scale is None:
            scale = "rsqrt" if self._is_proportional(x) else 1
        elif not isinstance(scale, float):
            scale = number("scale", scale)
        if scale == 1 and not norm:
            return self
        key = scale, norm
        if key not in self.mapped:
            if len(self.mapped) >= 64:
                self.mapped.clear()
            self.mapped[key] = self._derive(scale, norm)
        return self.mapped[key]

    def _derive(self, scale, norm):
        maps = {}
        if scale != "rsqrt" and not math.isfinite(scale):
            raise _c.ArgumentError(f"scale is {scale}: a finite number is "
                                   "wanted")
        query = self._query() if scale != 1 else None
        for name in {query, *("qk" if norm else "")} - {None}:
            if name not in self.order:
                raise _c.Error(f"{self.name}: use_qk_l2norm_in_kernel: there "
                               f"is no input {name}")
            axis = self.inputs[self.order[name]].axes[-1]
            text = f'flin.l2norm(x, "{axis}")' if norm else "x"
            if name == query:
                text += (f' * flin.rsqrt(flin.size(x, "{axis}"))'
                         if scale == "rsqrt" else f" * {scale.hex()}")
            maps[name] = f"{name} = function (x) return {text} end"
        script = ('local flin = require "flin"\n'
                  f"return (...):map {{ {', '.join(maps.values())} }}\n")
        try:
            return Variant(self.source, lambda device: _state.derive(
                self._caller(device).handle, script))
        except _c.Error as e:       # as of masks in mode quadratic
            raise _c.Error(
                f"{self.name}: neither scale nor use_qk_l2norm_in_kernel can "
                f"go before its step: {e.message}\n  help: scale=1, and q "
                "as it is to be") from None

    def _is_proportional(self, x):
        """Whether y doubles when q does: found by trying it, with two tokens
        of one head of these sizes, in float64."""
        if "q" not in self.order:
            return False
        if self._proportional is None:
            try:
                self._proportional = probe(self, [tuple(t.shape) for t in x])
            except (AttributeError, _c.Error):
                return False    # the call itself says what is wrong
        return self._proportional

    # ---- calls ----

    def __call__(self, *args, initial_state=None, output_final_state=False,
                 cu_seqlens=None, scale=None, use_qk_l2norm_in_kernel=False,
                 chunk=None, validate=None, **named):
        """o and the state behind the last token. scale multiplies q before
        the step; None: K^-1/2 where y is proportional to q, else 1.
        cu_seqlens: the ends of packed sequences, from 0 to T, where B is 1.
        chunk: tokens at once, 1 to 256 (None: flin's choice); it changes the
        rounding alone. validate: True raises where an input breaks its domain
        or a result is not finite, with the first token, head and value, and
        what made it; "growth" where a state may grow without bound, too (None:
        as FLIN_CHECK=1 in the environment says). It waits for the results."""
        x = self._take_inputs(args, named)
        s0 = self._take_states("initial_state", initial_state)
        door = door_of(self.inputs[0].name, x[0])
        o, *states = door.call(self, x, s0, cu_seqlens, chunk_of(chunk),
                               scale, bool(use_qk_l2norm_in_kernel),
                               bool(output_final_state),
                               validation(validate))
        return o, self._give_states(states) if output_final_state else None

    def step(self, *args, state=None, scale=None,
             use_qk_l2norm_in_kernel=False, inplace=False, validate=None,
             **named):
        """One token (T = 1) of each sequence, for decoding: o and the new
        state, written into `state` if inplace."""
        x = self._take_inputs(args, named)
        s0 = self._take_states("state", state)
        door = door_of(self.inputs[0].name, x[0])
        for i, a in enumerate(self.states if inplace else ()):
            if not s0 or s0[i] is None or not door.is_writable(s0[i]):
                raise _c.Error(f"{self.name}: step: state {a.name} is not one "
                               "that can be written in place")
        o, *states = door.step(self, x, s0, scale,
                               bool(use_qk_l2norm_in_kernel), inplace,
                               validation(validate))
        return o, self._give_states(states)

    def reference(self, *args, initial_state=None, output_final_state=False,
                  cu_seqlens=None, scale=None, use_qk_l2norm_in_kernel=False,
                  validate=None, **named):
        """The same as a call by the float64 step, token by token, on the CPU:
        the truth that all else is held to. No gradients."""
        x = self._take_inputs(args, named)
        s0 = self._take_states("initial_state", initial_state)
        door = door_of(self.inputs[0].name, x[0])
        v = self._through(scale, use_qk_l2norm_in_kernel, x)
        o, *states = door.run(v, Request(_c.REFERENCE, x, s0, cu_seqlens,
                                         final=bool(output_final_state),
                                         validate=validation(validate)))
        return o, self._give_states(states) if output_final_state else None

    def backward(self, *args, do=None, dstate=None, initial_state=None,
                 cu_seqlens=None, scale=None, use_qk_l2norm_in_kernel=False,
                 chunk=None, validate=None, **named):
        """The gradients of a loss whose gradients at o and the final state
        are do and dstate: a dict by the inputs' names, and "initial_state"
        where one is given."""
        x = self._take_inputs(args, named)
        s0 = self._take_states("initial_state", initial_state)
        ds = self._take_states("dstate", dstate)
        if do is None and dstate is None:
            raise _c.ArgumentError(f"{self.name}: backward: neither do nor "
                                   "dstate is given")
        door = door_of(self.inputs[0].name, x[0])
        v = self._through(scale, use_qk_l2norm_in_kernel, x)
        want = tuple([t is not None for t in x + s0])
        found = door.run(v, Request(_c.BACKWARD, x, s0, cu_seqlens,
                                    chunk_of(chunk), dy=do, ds=ds, want=want,
                                    validate=validation(validate)))
        grads = dict(zip(self.order, found))
        if initial_state is not None:
            later = iter(found[len(x):])
            grads["initial_state"] = self._give_states(
                [s if s is None else next(later) for s in s0])
        return grads


def number(name, value):
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise _c.ArgumentError(f"{name} is {value!r}: a number is wanted") \
            from None


def chunk_of(chunk):
    """As flin.h has it: 0 for its own choice."""
    if chunk is None:
        return 0
    if isinstance(chunk, bool) or not hasattr(chunk, "__index__") \
            or not 1 <= chunk <= 256:
        raise _c.ArgumentError(f"chunk = {chunk!r}: 1 to 256 tokens at once, "
                               "or None for flin's choice")
    return int(chunk)


def validation(validate):
    """As flin.h has it."""
    if validate is None:
        return 0
    if validate == "growth":
        return 2
    if type(validate).__name__ not in ("bool", "bool_"):
        raise _c.ArgumentError(f"validate = {validate!r}: True, False, "
                               "\"growth\" or None is wanted")
    return 1 if validate else -1


def probe(variant, shapes):
    """Whether y doubles when q does, for inputs of these shapes."""
    from . import _array
    random = _array.Random(1)
    x = []
    for a, shape in zip(variant.inputs, shapes):
        lead = (1, 2, 1) if a.timed else (1,)
        x.append(random.array(lead + shape[len(shape) - len(a.axes):],
                              a.domain))
    y, caller = [], variant._caller(_state.cpu())
    for _ in range(2):
        y.append(caller.run(_array, Request(_c.REFERENCE, x,
                                            validate=-1))[0])
        q = x[variant.order["q"]]
        q.data[:] = [2 * value for value in q.data]
    return all(b == 2 * a for a, b in zip(y[0].data, y[1].data))
