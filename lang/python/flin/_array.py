"""The door for arrays of float64 of our own: where flin asks itself, and need
not know which library the caller has."""
import ctypes
import random
from math import prod

from . import _c
from ._calls import row_major


class Array:
    def __init__(self, shape, data=None):
        self.shape = shape
        self.data = (ctypes.c_double * prod(shape))(*(data or ()))


class Random:
    """Random values of a domain, the same for the same seed."""

    def __init__(self, seed):
        self.gauss = random.Random(seed).gauss

    def array(self, shape, domain):
        x = [self.gauss(0, 1) for _ in range(prod(shape))]
        if domain == "log_decay":
            x = [-abs(value) for value in x]
        elif domain in ("unit", "positive"):
            x = [abs(value) % 1 for value in x]
        return Array(shape, x)


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


def empty_like(a):
    return Array(a.shape)


def place(call, like, cu):
    pass
