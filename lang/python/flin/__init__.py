"""flin: linear-attention and state-space layers from one token's step.

    gdn = flin.load("gated_deltanet")       # or a path, or a script's text
    o, state = gdn(q, k, v, g=g, beta=beta, output_final_state=True)

PyTorch tensors (CPU and CUDA, with gradients) and NumPy arrays."""
import os
import sys
from typing import Union

from . import _state
from ._c import Error, lib
from ._variant import Variant, register

__all__ = ["Error", "Variant", "load", "stdlib_names", "version"]

version = "%d.%d.%d" % (lib.version() // 10000, lib.version() // 100 % 100,
                        lib.version() % 100)
stdlib_names = _state.stdlib_names


def load(source: Union[str, os.PathLike]) -> Variant:
    """The variant of that name in the standard library (flin.stdlib_names()),
    of a file (a path, or a text that ends in ".lua"), or of a script's text.
    Raises flin.Error, a ValueError, with the script's line. It is pickled as
    this argument, and loaded again there."""
    if "torch" in sys.modules:  # before the first call, which torch.compile
        from . import _torch    # noqa: F401    # may have to look through
    return register(Variant(*_state.opener(source)), source)


def __getattr__(name):
    if name == "nn":            # needs PyTorch
        import importlib
        return importlib.import_module("flin.nn")
    raise AttributeError(f"module 'flin' has no attribute '{name}'")
