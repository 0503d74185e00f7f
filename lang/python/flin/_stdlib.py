"""flin.stdlib: the standard library's variants, by name."""
from __future__ import annotations

import html
import re
from typing import Iterator

from . import _state
from ._variant import Variant

SENTENCE = re.compile(r"(?:\([^()]*\)|\.(?! |$)|[^().])*")


class Stdlib:
    """The standard library: flin.stdlib.gla, flin.stdlib["gla"]; print() of
    it lists all with a line each, list() their names."""

    def __init__(self, load):
        self._load, self._loaded = load, {}

    def __getitem__(self, name: str) -> Variant:
        if name not in self._loaded:
            self._loaded[name] = self._load(name)
        return self._loaded[name]

    def __getattr__(self, name: str) -> Variant:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self[name]
        except ValueError as e:
            raise AttributeError(str(e)) from None

    def __iter__(self) -> Iterator[str]:
        return iter(_state.stdlib_names())

    def __len__(self) -> int:
        return len(_state.stdlib_names())

    def __contains__(self, name: object) -> bool:
        return name in _state.stdlib_names()

    def __dir__(self):
        return [*super().__dir__(), *self]

    def _briefs(self):
        """Names, and the first sentence that their scripts begin with."""
        for name in self:
            about = " ".join(self[name].about.split())
            yield name, SENTENCE.match(about).group()

    def __repr__(self) -> str:
        return "\n".join(f"{name:<16} {about}"
                         for name, about in self._briefs())

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td style='text-align:left'><b>{html.escape(name)}</b></td>"
            f"<td style='text-align:left'>{html.escape(about)}</td></tr>"
            for name, about in self._briefs())
        return f"<table>{rows}</table>"
