"""The door for arrays of float64 of our own: where flin asks itself, and need
not know which library the caller has."""
import ctypes
from math import prod

from . import _c
from ._calls import row_major


class Array:
    def __init__(self, shape):
        self.shape = shape
        self.data = (ctypes.c_double * prod(shape))()


def signature(arrays):
    return [a.shape for a in arrays]


def describe(name, a):
    return _c.F64, a.shape, row_major(a.shape)


def is_plain(a):
    return True


def check(name, a, first, like):
    pass


def pointer(a):
    return ctypes.addressof(a.data)


def empty(shape, dtype, like):
    return Array(shape)


keeps_order = False


def empty_like(a):
    return Array(a.shape)


def place(call, like, cu):
    pass
