"""The door for NumPy arrays, on the CPU."""
import sys

import numpy

from . import _c, _state
from ._calls import Caller, Request, overlaps, wrong_kind

CODE = {numpy.dtype("float32"): _c.F32, numpy.dtype("float16"): _c.F16,
        numpy.dtype("float64"): _c.F64, numpy.dtype("int32"): _c.I32,
        numpy.dtype("int64"): _c.I64}
DTYPE = {code: dtype for dtype, code in CODE.items()}
this = sys.modules[__name__]


def signature(arrays):
    return [(type(a), a.dtype, a.shape, a.strides) for a in arrays]


def describe(name, a):
    size = a.itemsize
    return CODE[a.dtype], a.shape, tuple(s // size for s in a.strides)


def check(name, a, first, like):
    if not isinstance(a, numpy.ndarray):
        raise wrong_kind(name, a, first, "a NumPy array",
                         "numpy.full([B, T, H], {}, \"float32\")")
    if isinstance(a, numpy.ma.MaskedArray):
        raise _c.Error(f"{name} is a masked array: flin has no masks of values"
                       f"\n  help: {name}.filled(0)")
    if a.dtype not in CODE:
        raise _c.Error(f"{name} is {a.dtype}: float32, float16 or float64 is "
                       "wanted")
    if any(s % a.itemsize for s in a.strides) or not a.flags.aligned:
        raise _c.Error(f"{name} does not lie at whole elements: give "
                       "numpy.ascontiguousarray of it")


def pointer(a):
    return a.ctypes.data


contiguous = numpy.ascontiguousarray


def is_plain(a):
    return True


def empty(shape, dtype, like):
    return numpy.empty(shape, DTYPE[dtype])


keeps_order = False


def empty_like(a):
    return numpy.empty(a.shape, a.dtype)


def space(size, like):
    """Aligned to 256, as flin_run wants it."""
    raw = numpy.empty(size + 255, numpy.uint8)
    return raw[-raw.ctypes.data % 256:][:size]


def ends(cu, like):
    try:
        cu = numpy.asarray(cu)
    except ValueError:
        raise _c.ArgumentError(f"cu_seqlens is {cu!r}: the ends of sequences "
                               "are wanted, as integers") from None
    if cu.dtype.kind not in "iu" or cu.ndim != 1:
        raise _c.Error(f"cu_seqlens is {cu.dtype} with {cu.ndim} dimensions: "
                       "int64 or int32 with 1 is wanted")
    return numpy.ascontiguousarray(cu, numpy.int64)


def index(i, like):
    try:
        i = numpy.asarray(i)
    except ValueError:
        raise _c.ArgumentError(f"state_index is {i!r}: entries of a pool are "
                               "wanted, as integers") from None
    return i.astype(numpy.int64) if i.size == 0 else i


def pools(tensors):
    pass


def written(a):
    pass


def place(call, like, cu):
    call.cu_seqlens = None if cu is None else cu.ctypes.data


def is_writable(a):
    return a.flags.writeable and not overlaps(a.shape, a.strides)


def written(a):
    """Nothing is told of what has been written over."""


def run(variant, r, how=Caller.run):
    return how(variant._caller(_state.cpu()), this, r)


def call(variant, x, s0, cu, chunk, scale, norm, final, validate, over=()):
    return run(variant._through(scale, norm, x),
               Request(_c.FORWARD, x, s0, cu, chunk, final,
                       validate=validate))


def step(variant, x, s0, scale, norm, inplace, validate):
    return run(variant._through(scale, norm, x),
               Request(_c.STEP, x, s0, final=True, inplace=inplace,
                       validate=validate))
