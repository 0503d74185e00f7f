"""What variants say of themselves: what Lua's methods give, as Python has it.

A report's numbers are the dict's entries, and its attributes; print() shows
the text that flin's prompt shows, and notebooks the drawing, where there is
one."""
from __future__ import annotations

import html
import json
from typing import Any, Container, Mapping

from . import _c

# v:initial as data; what is the same everywhere as one number.
INITIAL = """local v = ...
local all = {{}}
for name, x in pairs(v:initial {options}) do
  local least = x:min()
  all[name] = least == x:max() and least or x:totable()
end
return all
"""
NAMES = {True: "true", False: "false", None: "nil"}


class Text(str):
    """Lines that a prompt shows as they are."""
    _svg = ""

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return self._svg or f"<pre>{html.escape(self)}</pre>"

    def svg(self) -> str:
        """The drawing, or ""."""
        return self._svg


class Report(dict):
    """What a method found out: report["worst"], report.worst."""

    def __init__(self, text: str, data: Mapping[str, Any],
                 svg: str = "") -> None:
        super().__init__(data)
        self._text, self._svg = text, svg

    def svg(self) -> str:
        """The drawing, where there is one, or ""."""
        return self._svg

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"this report has no '{name}'; it has "
                                 + ", ".join(map(str, self))) from None

    def __dir__(self):
        return [*super().__dir__(), *self]

    def __repr__(self) -> str:
        return self._text

    __str__ = __repr__

    def __reduce__(self):
        return type(self), (self._text, dict(self), self._svg)

    def _repr_html_(self) -> str:
        return self.svg() + Text(self._text)._repr_html_()


def axes(ax: Any) -> Any:
    """matplotlib's axes: these, or the current ones."""
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot
    except ImportError:
        raise _c.Error("plot: there is no matplotlib here\n  help: pip install "
                       "matplotlib, or svg()") from None
    return matplotlib.pyplot.gca()


class Mask(Report):
    """Which token weighs how much in whose result: `rows`, [T, T], and
    numpy.asarray of it."""

    def __array__(self, dtype=None, copy=None):
        import numpy
        return numpy.array(self["rows"], dtype or float)

    def plot(self, ax: Any = None, **options: Any) -> Any:
        """On matplotlib's axes, with imshow's options; returns the image."""
        ax = axes(ax)
        ax.set(xlabel="token j, which is read",
               ylabel="token i, whose result it is")
        return ax.imshow(self["rows"], **options)


class Plan(Report):
    """Kernels, and what each moves."""

    def plot(self, ax: Any = None, **options: Any) -> Any:
        """The kernels in time, on matplotlib's axes, with barh's options."""
        ax, ends = axes(ax), [0.0]
        kernels = self["kernels"]
        for k in kernels:
            ends.append(ends[-1] + 1e9 * k["seconds"])
        ax.set(xlabel="predicted ns a token and head")
        ax.invert_yaxis()
        return ax.barh([f"{i} {k['name']}" for i, k in enumerate(kernels, 1)],
                       [1e9 * k["seconds"] for k in kernels], left=ends[:-1],
                       **options)


class Bench(Report):
    """Times of calls, `rows`, and of their kernels, `kernels`."""

    def plot(self, ax: Any = None, **options: Any) -> Any:
        """The kernels below memory's and products' roofs, on matplotlib's
        axes, with scatter's options; returns a dot of each."""
        ax, kernels = axes(ax), self["kernels"]
        x = [k["flops"] / k["moved"] for k in kernels]
        y = [k["flops"] / k["seconds"] for k in kernels]
        roof = [min(x) / 2, max(x) * 2]
        if "peak" in self:
            knee = self["peak"] / self["copy"]
            roof = [min(roof[0], knee / 2), knee, max(roof[1], knee * 2)]
        ax.set(xscale="log", yscale="log", xlabel="flop per byte moved",
               ylabel="flop/s")
        ax.plot(roof, [min(at * self["copy"], self.get("peak", float("inf")))
                       for at in roof], color="gray")
        dots = [ax.scatter([a], [b], label=f"{k['call']}: {k['name']}",
                           zorder=3, **options)
                for a, b, k in zip(x, y, kernels)]
        ax.legend(fontsize="small")
        return dots


# ---- Python's values as Lua writes them ----


def quoted(s: str) -> str:
    return '"' + "".join(chr(b) if 32 <= b < 127 and b not in b'"\\'
                         else f"\\{b:03}" for b in s.encode()) + '"'


def lua(name: str, x: Any) -> str:
    """The value as Lua writes it."""
    if hasattr(x, "tolist"):
        x = x.tolist()
    if x is None or isinstance(x, bool):
        return NAMES[x]
    if isinstance(x, int):
        return str(x)
    if isinstance(x, float):
        return x.hex() if abs(x) < float("inf") else \
            "(0/0)" if x != x else f"({'-' * (x < 0)}1/0)"
    if isinstance(x, str):
        return quoted(x)
    if isinstance(x, (list, tuple)):
        return "{ " + ", ".join(lua(name, e) for e in x) + " }"
    raise _c.ArgumentError(f"{name} is {type(x).__name__}: a number, a text, "
                           "a list or an array is wanted")


def options(given: Mapping[str, Any], tensors: Container[str] = ()) -> str:
    """A table of options; those of these names are tensors."""
    def entry(name, x):
        return lua(name, x) if name not in tensors else \
            f'flin.tensor({lua(name, x)}, {{ dtype = "float64" }})'
    return "{ " + ", ".join(f"[{quoted(name)}] = {entry(name, x)}"
                            for name, x in given.items()) + " }"


def parsed(text: str) -> Any:
    return json.loads(text)
