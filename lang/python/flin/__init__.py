"""flin: linear-attention and state-space layers from one token's step.

    gdn = flin.load("gated_deltanet")       # or a path, or a script's text
    o, state = gdn(q, k, v, g=g, beta=beta, output_final_state=True)

PyTorch tensors (CPU and CUDA, with gradients) and NumPy arrays. flin.stdlib
lists the variants that come along, help(gdn) says what one takes, and its
methods check, gradcheck, bench, plan, io, mask, dag and source how it runs."""
from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from . import _reports, _state
from ._c import Error, lib
from ._stdlib import Stdlib
from ._variant import Variant, register

if TYPE_CHECKING:
    from . import distributed as distributed, nn as nn

__all__ = ["Error", "Variant", "curves", "load", "stdlib", "stdlib_names",
           "version"]

version: str = "%d.%d.%d" % (lib.version() // 10000,
                             lib.version() // 100 % 100, lib.version() % 100)
__version__ = version


def load(source: str | os.PathLike[str], plan: str | None = None,
         checkpoint: bool = False, memory: int | None = None) -> Variant:
    """The variant of that name in the standard library (flin.stdlib lists
    them), of a file (a path, or a text that ends in ".lua"), or of a script's
    text. Raises flin.Error, a ValueError, with the script's line. It is
    pickled as these arguments, and loaded again there. plan: how the calls of
    a layer (flin.layer) run: "separate", each part as kernels of its own;
    "fused", norms, gates and maps of a head in the steps of the variants that
    it calls; "whole", products with weights, too, where they fit there;
    "tiles", a product and the program over rows that alone reads it some
    tokens or some columns at a time, so that what lies between is never whole;
    "pieces", for training on a GPU in less memory, variants in pieces of the
    call: the least of memory times time, of all that is predicted to take a
    twentieth more time or less; "stack", the same for a layer among many, of
    whose memory what it keeps between the two ways counts, and a fifth more
    time; None: what is predicted to be cheapest of the first two, or between
    them.
    memory: so many bytes of what lies between at most, by tiles where it is
    more; with "pieces", of all that a layer's training call takes, its result
    among it: the least time in that, or, where nothing is so small, the least.
    checkpoint: a layer's calls keep their inputs alone for the way back, which
    then begins with the way forward; gradients have the same bits."""
    if "torch" in sys.modules:  # before the first call, which torch.compile
        from . import _torch    # noqa: F401    # may have to look through
    return register(Variant(*_state.opener(source), plan, checkpoint, memory),
                    source)


def curves(series: Mapping[str, Sequence[Any]], **options: Any) -> str:
    """Lines through points as SVG, by name: numbers, or pairs of x and y.
    Options as scripts' flin.picture.curves has them: title, x, y, log, from_
    and to of y, width, height."""
    lines = ", ".join(
        f"{{ name = {_reports.lua('name', name)}, "
        f"points = {_reports.lua(name, list(points))} }}"
        for name, points in series.items())
    options = _reports.options({name.rstrip("_"): value
                                for name, value in options.items()})
    return str(stdlib["linear"]._says(
        f"flin.picture.curves({{ {lines} }}, {options})"))


stdlib_names = _state.stdlib_names
stdlib = Stdlib(load)


def __getattr__(name: str) -> Any:
    if name in ("distributed", "nn"):   # need PyTorch
        import importlib
        return importlib.import_module("flin." + name)
    raise AttributeError(f"module 'flin' has no attribute '{name}'")
