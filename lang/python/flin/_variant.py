"""Variants: what flin.load gives, and how it is called."""
from __future__ import annotations

import collections
import difflib
import functools
import html
import inspect
import itertools
import keyword
import math
import re
import textwrap
import weakref
from typing import Any

from . import _c, _reports, _state
from ._c import lib
from ._calls import Caller, Request

OPTIONS = ("initial_state", "state", "output_final_state", "cu_seqlens",
           "scale", "use_qk_l2norm_in_kernel", "chunk", "validate", "inplace",
           "do", "dstate", "wanted", "state_index")


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
VARIANTS = weakref.WeakValueDictionary()        # as loaded, by key
HELD = set()                    # those that graphs know by their keys
numbers = itertools.count()


def register(variant, origin):
    """Gives it a key. origin: what it was loaded from."""
    variant.origin = origin
    variant.key = f"{variant.name}#{next(numbers)}"
    VARIANTS[variant.key] = variant
    return variant


def held(key):
    """The variant of a key that a graph has, which lives on with it."""
    v = VARIANTS[key]
    HELD.add(v)
    return v


ABOUT = """A variant, called as flash-linear-attention's functions are:

        o, state = gdn(q, k, v, g=g, beta=beta, initial_state=s0,
                   cu_seqlens=cu, output_final_state=True)

Tensors are [B, T, H, ...], inputs without t [H, ...], states [N, H, ...] (N:
batch entries or sequences); of a layer (flin.layer) heads are an axis as
others, and x is [B, T, d]. q, k, v may be given by position, all others by
name. The state is a tensor where the variant has one, else a dict by name;
None unless output_final_state. Of a variant with several results o is a named
tuple of them: o.y, o.NAME. Float64 is computed by the float64 step, on the
CPU. v.step decodes one token, v.reference is the float64 step, v.backward
gives gradients without PyTorch.

inputs, output and states say what it takes and gives: each has a name, axes
(behind batch, tokens and heads), a domain ("log_decay": <= 0 ...) and whether
it is per token, `timed`. v.check, v.gradcheck, v.bench, v.plan, v.io, v.mask,
v.dag and v.source say how it runs; help(v) says what one variant takes. It
cannot be changed, so that a copy is itself."""
CALL = """
Called as v({call}): o and,
if output_final_state, the state behind the last token. Options, which
help(flin.Variant.__call__) explains:
{options}.
v.step decodes, v.reference is the float64 step, v.check and v.gradcheck hold
calls to it; v.plan, v.io, v.bench, v.mask, v.dag and v.source show how it
runs."""


PICTURE = "log", "decades", "title", "theme"


class Described:
    """An attribute of variants, made by f when asked for; the class has its
    own, or none."""

    def __init__(self, f, of_class=None):
        self.f, self.of_class = f, of_class

    def __get__(self, variant, kind):
        if variant is not None:
            return self.f(variant)
        if self.of_class is None:
            raise AttributeError(self.f.__name__)
        return self.of_class


class Variant:
    def __init__(self, given, open_on, plan=None, checkpoint=False,
                 memory=None):
        self.given, self.open_on, self._plan = given, open_on, plan
        self._checkpoint, self._memory = checkpoint, memory
        self.release, self.callers = _state.release, {}
        handle = open_on("cpu")
        self.name: str = lib.name(handle).decode()
        arguments = _state.arguments(handle)
        self.inputs: list[_state.Argument] = [
            a for a in arguments if a.role == _c.INPUT]
        self.states: list[_state.Argument] = [
            a for a in arguments if a.role == _c.STATE]
        self.outputs: list[_state.Argument] = [
            a for a in arguments if a.role == _c.OUTPUT]
        self.output: _state.Argument = self.outputs[0]
        self._results = collections.namedtuple(
            "Results", [o.name for o in self.outputs], rename=True)
        self.order = {a.name: i for i, a in enumerate(self.inputs)}
        # Inputs whose names are Python's own words: "lambda_" for "lambda".
        self.words = {n + "_": n for n in self.order
                      if keyword.iskeyword(n) and n + "_" not in self.order}
        self.by_position = [n for n in ("q", "k", "v") if n in self.order]
        self.layouts = [self._layout(n)
                        for n in range(len(self.by_position) + 1)]
        self.callers["cpu"] = Caller(handle, self.inputs, self.states,
                                     self.outputs, plan, checkpoint,
                                     memory or 0)
        sizes = {axis: _state.axis_size(handle, axis)
                 for a in arguments for axis in a.axes}
        self.sizes: dict[str, int] = sizes  # of axes; 0: the tensors say
        self.mapped, self._proportional = {}, None
        self._alone = None
        self._probed_of = None
        if checkpoint and not self.is_layer:
            raise _c.Error(f"{self.name}: checkpoint: it is no layer\n  help: "
                           "flin.nn.Stack(..., checkpoint=1)")
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
        if self._probed_of is not None:
            return getattr, (self._probed_of, "probed")
        from . import load
        return load, (self.origin, self._plan, self._checkpoint, self._memory)

    def _caller(self, device):
        """What runs the calls on this device."""
        found = self.callers.get(device)
        if found is None:
            found = self.callers[device] = Caller(
                self.open_on(device), self.inputs, self.states, self.outputs,
                self._plan, self._checkpoint, self._memory or 0)
        return found

    # ---- what it says of itself ----

    @property
    def form(self) -> str:
        """How each state goes on, and whether calls run in chunks or token by
        token, and why: lines of text."""
        return _reports.Text(_state.form(self.callers["cpu"].handle))

    @property
    def note(self) -> str | None:
        """Why calls have gone token by token; None if none has."""
        # a scale or norms before the step make a variant of their own
        for v in [self, *self.mapped.values()]:
            for caller in v.callers.values():
                note = caller.note()
                if note:
                    return note
        return None

    @property
    def about(self) -> str:
        """The comment that its script begins with."""
        return self.describe()["about"]

    def describe(self) -> _reports.Report:
        """Inputs, output and states with axes, shapes, domains and units."""
        handle = self._caller(_state.cpu()).handle
        return _reports.Report(_state.describe(handle, _c.TEXT),
                               _reports.parsed(_state.describe(handle,
                                                               _c.JSON)))

    def __repr__(self):
        form = re.sub(r"\n *\d+ \| .*$", "", self.form.rstrip())
        road = form.rpartition("\n")[2].strip()
        return (f"flin.load({self.given!r})  # "
                f"inputs {', '.join(map(repr, self.inputs))}; "
                f"states {', '.join(map(repr, self.states))}; {road}")

    def _repr_html_(self):
        d = self.describe()
        rows = "".join(
            "<tr>" + "".join(
                f"<td style='text-align:left'>{html.escape(text)}</td>"
                for text in (kind, a["name"], a["shape"], _wanted(a)))
            + "</tr>" for kind, list in (("takes", d["inputs"]),
                                         ("gives", d["outputs"]),
                                         ("keeps", d["states"]))
            for a in list)
        return (f"<p><b>{html.escape(self.name)}</b> "
                f"{html.escape(d['about'])}</p><table>{rows}</table>"
                f"<pre>{html.escape(self.form)}</pre>")

    def _by_name(self):
        """The inputs that go by name, as Python writes them."""
        words = {name: word for word, name in self.words.items()}
        return [words.get(name, name) for name in self.order
                if name not in self.by_position]

    def _signature(self):
        kinds = inspect.Parameter
        usual = inspect.signature(Variant.__call__).parameters.values()
        return inspect.Signature(
            [kinds(name, kinds.POSITIONAL_OR_KEYWORD)
             for name in self.by_position]
            + [kinds(name, kinds.KEYWORD_ONLY) for name in self._by_name()]
            + [p for p in usual if p.kind == kinds.KEYWORD_ONLY])

    def _help(self):
        names = self.by_position + [f"{n}={n}" for n in self._by_name()]
        usual = inspect.signature(Variant.__call__).parameters.values()
        return f"{self.describe()}\n" + CALL.format(
            call=", ".join(names), options=textwrap.fill(", ".join(
                p.name for p in usual if p.kind == p.KEYWORD_ONLY), 76))

    __signature__ = Described(_signature)
    __doc__ = Described(_help, ABOUT)

    # ---- reports: the methods that scripts have, with their options ----

    def _report(self, call, kind=_reports.Report, picture='""'):
        """What a call of a method gives, as text, as data and drawn."""
        handle = self._caller(_state.cpu()).handle
        return kind(*_reports.parsed(_state.report(handle, (
            'local v, flin = ..., require "flin"\n'
            f"local r, text = {call}\n"
            f"return {{ text or tostring(r), r, {picture} }}\n"), _c.JSON)))

    def _says(self, call):
        """What a call of a method gives, a text."""
        return _reports.Text(_state.report(
            self._caller(_state.cpu()).handle, 'local v, flin = ..., require '
            f'"flin"\nreturn {call}\n', _c.TEXT))

    def plan(self, *, format: str = "table", **options: Any) -> Any:
        """The kernels that a machine would run, and what each moves; drawn in
        notebooks and by svg(), with matplotlib by plot(). Options: sizes of
        axes (K=128), machine="cpu" or "h200", backward, chunk. format="svg"
        or "dot" (Graphviz's) gives that as text. Of a layer: what runs each
        of its parts, with B= and T=."""
        options["format"] = format
        call = "v:plan" + _reports.options(options)
        if self.is_layer:
            return self._report(call)
        if format != "table":
            return self._says(call)
        return self._report(call, _reports.Plan, "v:plan" + _reports.options(
            {**options, "format": "svg"}))

    @functools.cached_property
    def is_layer(self) -> bool:
        """Made by flin.layer: heads are axes as others."""
        return self._says("tostring(v.is_layer)") == "true"

    @property
    def beside(self) -> list[tuple[list[str], list[str]]]:
        """A layer's weights that multiply the same values, in the order in
        which they may lie beside one another, and the axes that are summed."""
        lines = self._says('(function () local s = "" for _, b in ipairs('
                           'v.beside) do s = s .. table.concat(b, " ") .. "|" '
                           '.. b.over .. "\\n" end return s end)()')
        pairs = [line.split("|") for line in lines.splitlines()]
        return [(names.split(), over.split()) for names, over in pairs]

    def initial(self, **options: Any) -> dict[str, Any]:
        """How constants and weights begin, where the definition says so: lists
        of numbers in the input's shape, or one number for all. Options: H,
        sizes of axes (K=64), seed."""
        return dict(_reports.parsed(_state.report(
            self._caller(_state.cpu()).handle,
            _reports.INITIAL.format(options=_reports.options(options)),
            _c.JSON)))

    def usual_sizes(self, **sizes: int) -> dict[str, int]:
        """How long each axis is: as given here, by the definition, or as is
        usual where the definition says so."""
        return {axis: int(n) for axis, n in _reports.parsed(_state.report(
            self._caller(_state.cpu()).handle,
            "local v = ...\nreturn v:sizes" + _reports.options(sizes) + "\n",
            _c.JSON)).items()}

    def check(self, **options: Any) -> _reports.Report:
        """Errors of the chunk form, the step and the gradients against the
        float64 step, on random input. Options: B, T, H, HV, sizes of axes
        (K=64), size= of axes not named, dtype, chunk, cu_seqlens, seed,
        backend, threads, backward=False. Numbers are relative RMS errors;
        `worst` is the greatest."""
        return self._report("v:check" + _reports.options(options))

    def gradcheck(self, **options: Any) -> _reports.Report:
        """Gradients against differences of the float64 step. Options: B, T,
        H, sizes of axes, size= of axes not named, chunk, backend, seed,
        directions. Numbers are relative errors; `worst` is the greatest."""
        return self._report("v:gradcheck" + _reports.options(options))

    def bench(self, **options: Any) -> _reports.Bench:
        """Times: chunk form, token loop, decoding, and the machine's floor.
        Options: B, T, H, sizes of axes, dtype, chunk, backend, threads,
        backward=False, seconds= of each row. Drawn as a roofline of its
        `kernels`; plot() draws that with matplotlib."""
        return self._report("v:bench" + _reports.options(options),
                            _reports.Bench, "flin.picture.roofline(r)")

    def io(self, **options: Any) -> _reports.Report:
        """The least words that can be moved, beside what the plan moves.
        Options: T, sizes of axes, cache= bytes, machine, backward, chunk,
        Z_input, Z_QK."""
        return self._report("v:io" + _reports.options(options))

    def mask(self, **options: Any) -> _reports.Mask:
        """The weight of token j in token i's result: what comes out where q =
        k = (1, 0, ...) and v is the identity. Options: T=32, seed, sizes of
        axes, inputs by name in place of random ones; of the drawing log=True,
        title, theme. `rows` holds it, as does numpy.asarray of it; plot()
        draws it with matplotlib."""
        drawn = {name: options.pop(name) for name in PICTURE
                 if name in options}
        return self._report(
            "(function () local m = v:mask"
            + _reports.options(options, self.order)
            + " return { rows = m }, flin.heat_map(m) end)()", _reports.Mask,
            f"flin.picture.mask(r.rows, {_reports.options(drawn)})")

    def dag(self) -> _reports.Text:
        """The step as assignments: what depends on what. Drawn in notebooks
        and by svg()."""
        text = self._says("v:dag()")
        text._svg = str(self._says('v:dag { format = "svg" }'))
        return text

    def graph(self, **options: Any) -> _reports.Text:
        """The step's graph as text."""
        return self._says("v:graph" + _reports.options(options))

    def dump(self, letters: str, **options: Any) -> _reports.Text:
        """What passes make: T step, C chunk form, G joint graph, P plan.
        Options: sizes of axes, chunk."""
        return self._says(f"v:dump({_reports.quoted(letters)}, "
                          f"{_reports.options(options)})")

    def source(self, backend: str = "cuda",
               **options: Any) -> _reports.Text:
        """The plan as CUDA C++. Options: sizes of axes, chunk, dtype,
        backward, serial (one token after another), arch="sm_90a" ..."""
        return self._says(f"v:source({_reports.quoted(backend)}, "
                          f"{_reports.options(options)})")

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
        if self.words:
            named = {self.words.get(n, n): t for n, t in named.items()}
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

    def _take_gradients(self, do):
        """Of the results: a tensor (y's), or a dict by their names."""
        if not isinstance(do, dict):
            return [do] + [None] * (len(self.outputs) - 1)
        unknown = set(do) - {o.name for o in self.outputs}
        if unknown:
            raise _c.ArgumentError(
                f"{self.name}: do: there is no result '{unknown.pop()}'; "
                f"results: {', '.join(o.name for o in self.outputs)}")
        return [do.get(o.name) for o in self.outputs]

    def _give(self, found, final):
        """What a call returns of its results and states."""
        n = len(self.outputs)
        return (found[0] if n == 1 else self._results(*found[:n]),
                self._give_states(found[n:]) if final else None)

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

    def _each(self):
        """A variant for each result, which has that one alone."""
        if len(self.outputs) == 1:
            return [self]
        if self._alone is None:
            self._alone = [Variant(
                self.given, lambda device, i=i: _state.derive(
                    self._caller(device).handle,
                    f"return (...):result({i + 1})\n"))
                for i in range(len(self.outputs))]
        return self._alone

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
            return Variant(self.given, lambda device: _state.derive(
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

    def _over(self, names):
        """For each input whether its gradient is written over it."""
        known = {a.name for a in self.inputs if a.timed}
        for name in names:
            if name not in known or not self.is_layer:
                raise _c.ArgumentError(f"{self.name}: inplace: there is no "
                                       f"input {name!r} of a layer")
        return tuple(a.name in names for a in self.inputs) if names else ()

    def __call__(self, *args: Any, initial_state: Any = None,
                 output_final_state: bool = False, cu_seqlens: Any = None,
                 scale: float | None = None,
                 use_qk_l2norm_in_kernel: bool = False,
                 chunk: int | None = None, validate: bool | str | None = None,
                 inplace: tuple[str, ...] = (), state_index: Any = None,
                 **named: Any) -> tuple[Any, Any]:
        """o and the state behind the last token. scale multiplies q before
        the step; None: K^-1/2 where y is proportional to q, else 1.
        cu_seqlens: the ends of packed sequences, from 0 to T, where B is 1.
        chunk: tokens at once, 1 to 256 (None: flin's choice); it changes the
        rounding alone. validate: True raises where an input breaks its domain
        or a result is not finite, with the first token, head and value, and
        what made it; "growth" where a state may grow without bound, too (None:
        as FLIN_CHECK=1 in the environment says). It waits for the results.
        inplace: names of inputs of a layer that are given up: backward writes
        their gradients over them, with the same bits. state_index: integers
        [N]: initial_state is a pool of states, [P, H, ...], of which sequence
        n has entry state_index[n], read and written in place (-1: a place in
        the batch that no sequence has; its rows of o hold nothing). The pool
        is then what is returned as the state. No gradients."""
        x = self._take_inputs(args, named)
        s0 = self._take_states("initial_state", initial_state)
        door = door_of(self.inputs[0].name, x[0])
        if state_index is not None:
            return self._pooled(_c.FORWARD, x, s0, state_index, scale,
                                use_qk_l2norm_in_kernel, cu=cu_seqlens,
                                chunk=chunk_of(chunk),
                                validate=validation(validate))
        found = door.call(self, x, s0, cu_seqlens, chunk_of(chunk),
                               scale, bool(use_qk_l2norm_in_kernel),
                               bool(output_final_state),
                               validation(validate), self._over(inplace))
        return self._give(found, output_final_state)

    @functools.cached_property
    def probed(self) -> Variant:
        """The variant whose results are this one's and what its step probes
        (flin.probe in the script), each for every token: called, decoded, with
        gradients and a reference as all are. Error where it probes nothing."""
        v = register(Variant(self.given, lambda device: _state.derive(
            self._caller(device).handle, "return (...):probed()\n")), None)
        v._probed_of = self
        return v

    def probe(self, *args: Any, **named: Any) -> Any:
        """The results of such a call, and beside y what the step probes, for
        every token: a named tuple, r.y and r.NAME of each flin.probe("NAME",
        value). Arguments as the call's."""
        return self.probed(*args, **named)[0]

    def step(self, *args: Any, state: Any = None, scale: float | None = None,
             use_qk_l2norm_in_kernel: bool = False, inplace: bool = False,
             validate: bool | str | None = None, state_index: Any = None,
             **named: Any) -> tuple[Any, Any]:
        """One token (T = 1) of each sequence, for decoding: o and the new
        state, written into `state` if inplace. state_index: integers [B]:
        `state` is a pool, as calls have it, and is written in place."""
        x = self._take_inputs(args, named)
        s0 = self._take_states("state", state)
        if state_index is not None:
            return self._pooled(_c.STEP, x, s0, state_index, scale,
                                use_qk_l2norm_in_kernel,
                                validate=validation(validate))
        door = door_of(self.inputs[0].name, x[0])
        for i, a in enumerate(self.states if inplace else ()):
            if not s0 or s0[i] is None or not door.is_writable(s0[i]):
                raise _c.Error(f"{self.name}: step: state {a.name} is not one "
                               "that can be written in place")
        found = door.step(self, x, s0, scale,
                               bool(use_qk_l2norm_in_kernel), inplace,
                               validation(validate))
        return self._give(found, True)

    def verify(self, *args: Any, state: Any = None,
               scale: float | None = None,
               use_qk_l2norm_in_kernel: bool = False, state_index: Any = None,
               **named: Any) -> tuple[Any, Any]:
        """Some tokens of each sequence that may be taken back, as speculative
        decoding guesses them: o, and the state behind each token, [B, T, H,
        ...]. state_index: integers [B, T + 1]: `state` is a pool; column 0 is
        the entry that is read, column t + 1 the one that the state behind
        token t is written to (-1: it is not kept). So where n tokens are
        accepted, the next call's column 0 is this one's column n. No
        gradients."""
        x = self._take_inputs(args, named)
        s0 = self._take_states("state", state)
        return self._pooled(_c.VERIFY, x, s0, state_index, scale,
                            use_qk_l2norm_in_kernel)

    def _pooled(self, mode, x, s0, index, scale, norm, **more):
        """A call whose states lie in pools; or which leaves many."""
        door = door_of(self.inputs[0].name, x[0])
        door.pools([*x, *[s for s in s0 if s is not None]])
        if index is not None:
            index = door.index(index, x[0])
        for i, a in enumerate(self.states if index is not None else ()):
            if not s0 or s0[i] is None or not door.is_writable(s0[i]) \
                    or not door.is_plain(s0[i]):
                raise _c.Error(f"{self.name}: state_index: state {a.name} is "
                               "not a pool that can be written in place")
        found = door.run(
            self._through(scale, bool(norm), x),
            Request(mode, x, s0, final=True, inplace=index is not None,
                    index=index, **more))
        for s in s0 if index is not None else ():
            door.written(s)
        return self._give(found, True)

    def reference(self, *args: Any, initial_state: Any = None,
                  output_final_state: bool = False, cu_seqlens: Any = None,
                  scale: float | None = None,
                  use_qk_l2norm_in_kernel: bool = False,
                  validate: bool | str | None = None,
                  **named: Any) -> tuple[Any, Any]:
        """The same as a call by the float64 step, token by token, on the CPU:
        the truth that all else is held to. No gradients."""
        x = self._take_inputs(args, named)
        s0 = self._take_states("initial_state", initial_state)
        door = door_of(self.inputs[0].name, x[0])
        v = self._through(scale, use_qk_l2norm_in_kernel, x)
        found = door.run(v, Request(_c.REFERENCE, x, s0, cu_seqlens,
                                         final=bool(output_final_state),
                                         validate=validation(validate)))
        return self._give(found, output_final_state)

    def summary(self, *args: Any, cu_seqlens: Any = None,
                scale: float | None = None,
                use_qk_l2norm_in_kernel: bool = False,
                chunk: int | None = None, **named: Any) -> tuple[Any, Any]:
        """What the tokens do to the state, whatever it is before them: own,
        which they leave of a state that is zero, and the transition M: where
        entries along axis K only decay [N, H, K], else [N, H, K, K]. Of a
        state S they leave M S + own. No gradients. Error, with the reason,
        where the state is not one matrix that each token changes by a matrix
        of its own."""
        x = self._take_inputs(args, named)
        door = door_of(self.inputs[0].name, x[0])
        v = self._through(scale, bool(use_qk_l2norm_in_kernel), x)
        found = door.run(v, Request(_c.FORWARD, x, (), cu_seqlens,
                                    chunk_of(chunk), final=True),
                         Caller.summary)
        n = len(self.states)
        return tuple(self._give_states(found[i:i + n]) for i in (0, n))

    def backward(self, *args: Any, do: Any = None, dstate: Any = None,
                 initial_state: Any = None, cu_seqlens: Any = None,
                 scale: float | None = None,
                 use_qk_l2norm_in_kernel: bool = False,
                 chunk: int | None = None, validate: bool | str | None = None,
                 wanted: tuple[str, ...] | None = None,
                 inplace: tuple[str, ...] = (),
                 **named: Any) -> dict[str, Any]:
        """The gradients of a loss whose gradients at o and the final state
        are do (of several results a dict by name) and dstate: a dict by the
        inputs' names, and "initial_state" where one is given. wanted: of which
        inputs alone (None: of all). inplace: inputs of a layer that their
        gradients are written over."""
        x = self._take_inputs(args, named)
        s0 = self._take_states("initial_state", initial_state)
        ds = self._take_states("dstate", dstate)
        if do is None and dstate is None:
            raise _c.ArgumentError(f"{self.name}: backward: neither do nor "
                                   "dstate is given")
        door = door_of(self.inputs[0].name, x[0])
        v = self._through(scale, use_qk_l2norm_in_kernel, x)
        for name in wanted or ():
            if name not in self.order:
                raise self._unknown(name)
        names = [n for n in self.order if wanted is None or n in wanted]
        want = tuple([n in names for n in self.order]
                     + [t is not None for t in s0])
        over = tuple(o and w for o, w in zip(self._over(inplace), want))
        found = door.run(v, Request(_c.BACKWARD, x, s0, cu_seqlens,
                                    chunk_of(chunk),
                                    dy=self._take_gradients(do), ds=ds,
                                    want=want, over=over,
                                    validate=validation(validate)))
        for t, o in zip(x, over):
            if o:
                door.written(t)
        grads = dict(zip(names, found))
        if initial_state is not None:
            later = iter(found[len(names):])
            grads["initial_state"] = self._give_states(
                [s if s is None else next(later) for s in s0])
        return grads


def _wanted(a):
    """A described argument's domain and unit, in words."""
    domain = a.get("domain", "normal")
    words = [] if domain == "normal" else [f"{domain}: {a['wanted']}"]
    return ", ".join(words + [u for u in [a.get("unit")] if u])


def number(name, value):
    if getattr(value, "requires_grad", False) \
            and door_of(name, value).is_recording():
        raise _c.ArgumentError(f"{name} is a number here, and has no gradient"
                               f"\n  help: q * {name} instead, and "
                               f"{name} = 1")
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


PROBE = """local v = ...
local x = v:random {sizes}
local function result()
  local r = v:reference(x)
  return type(r) == "table" and r.y or r
end
local y = result()
x.q = x.q * 2
return {{ (result() - y * 2):maxabs() == 0 }}
"""


def probe(variant, shapes):
    """Whether y doubles when q does, for inputs of these shapes."""
    sizes = {"B": 1, "T": 2, "H": 1, "dtype": "float64"}
    for a, shape in zip(variant.inputs, shapes):
        sizes.update(zip(a.axes, shape[len(shape) - len(a.axes):]))
    script = PROBE.format(sizes=_reports.options(sizes))
    return _reports.parsed(_state.report(
        variant._caller(_state.cpu()).handle, script, _c.JSON))[0]
