"""The process's flin_States, one a device, and what they have loaded.

Ctrl-C: Python raises KeyboardInterrupt, and what handlers of other signals
raise, in the main thread alone. The state for calls on the CPU from other
threads does not ask."""
import ctypes
import os
import re
import sys
import threading
import warnings
from ctypes import byref
from typing import List

from . import _c
from ._c import lib

lock = threading.RLock()        # states belong to one thread at a time
interrupts = []                 # what signals raised during a call


def _watch():
    """Asked by flin every few milliseconds while it works. A generator, since
    Python raises KeyboardInterrupt, or what else handlers of signals raise,
    where it resumes: here, inside the try."""
    while True:
        try:
            yield len(interrupts)
        except GeneratorExit:
            return
        except BaseException as e:
            interrupts.append(e)


def _start_watch():
    watch = _watch()
    next(watch)
    return watch.send


_interrupted = _c.INTERRUPTED(_start_watch())
_log = _c.LOG(lambda _, line: print(line.decode("utf-8", "replace")))
said = []                       # what flin has to say, until say() says it
_warn = _c.LOG(lambda _, line: said.append(line.decode("utf-8", "replace")))
_states = {}                    # by device: a state opens one GPU
OTHER = "cpu, other threads"


def is_main():
    return threading.get_ident() == threading.main_thread().ident


def cpu():
    """The device of a call on the CPU from this thread."""
    return "cpu" if is_main() else OTHER


def _renew_lock():
    global lock
    lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


def checked(code, error):
    """After a call: raises what went wrong, or an interrupt that came."""
    if interrupts and is_main():
        came = interrupts[0]
        interrupts.clear()
        raise came
    if code:
        raise _c.failure(error)


def say():
    """Warns of what flin had to say, where the caller's own code is."""
    while said:
        line, level = said.pop(0), 2
        frame = sys._getframe(1)
        while frame.f_back is not None and \
                frame.f_globals.get("__name__", "").partition(".")[0] in \
                (__package__, "torch"):
            frame, level = frame.f_back, level + 1
        warnings.warn(line, stacklevel=level)


def _handle(f, *arguments):
    """What f, a function of flin.h, makes: never NULL."""
    error = _c.ErrorText()
    with lock:
        handle = f(*arguments, byref(error))
    checked(0 if handle else error.code or _c.INTERNAL, error)
    return handle


def state(device="cpu"):
    with lock:
        if device not in _states:
            o = _c.Options(size=ctypes.sizeof(_c.Options), log=_log,
                           warn=_warn)
            if device != OTHER:
                o.interrupted = _interrupted
            _states[device] = _handle(lib.open, byref(o))
        return _states[device]


def stdlib_names() -> List[str]:
    """The names of the standard library's variants."""
    names, i = [], 0
    while (name := lib.stdlib_name(state(), i)) is not None:
        names.append(name.decode())
        i += 1
    return names


def opener(source):
    """What to call it, and a function that loads the flin_Variant of a path,
    a text or a name in a device's state."""
    is_path = isinstance(source, os.PathLike)
    if is_path:
        source = os.fsdecode(source)
    elif not isinstance(source, str):
        raise _c.ArgumentError(
            "flin.load: a name of the standard library, a path or a text is "
            f"wanted, not {type(source).__name__}")
    if "\0" in source:
        raise _c.ArgumentError("flin.load: a zero byte is in the "
                               + ("path" if is_path else "text"))
    if is_path:
        pass
    elif "\n" in source or re.search(r"\breturn\b", source):
        return "text", lambda device: _handle(
            lib.load_string, state(device), source.encode(), b"text")
    elif not source.endswith(".lua") and os.path.sep not in source:
        return source, lambda device: _handle(lib.stdlib, state(device),
                                              source.encode())
    return source, lambda device: _handle(lib.load_file, state(device),
                                          os.fsencode(source))


def axis_size(handle, axis):
    with lock:
        return lib.axis_size(handle, axis.encode())


def _text(f, *arguments):
    """What f, a function of flin.h, says."""
    error = _c.ErrorText()
    with lock:
        text = f(*arguments, byref(error))
    checked(0 if text is not None else error.code or _c.INTERNAL, error)
    say()
    return text.decode("utf-8", "replace")


def form(handle):
    return _text(lib.form, handle)


def describe(handle, format):
    return _text(lib.describe, handle, format)


def report(handle, script, format):
    """What the script gives for the variant."""
    return _text(lib.report, handle, script.encode(), _c.SCRIPT, format)


def transition(handle):
    """The states that a variant's transition is of, as its arguments are
    counted; their transitions' rank; the name of the axis along which they
    decay or are erased, None where each entry goes on by itself."""
    error, t = _c.ErrorText(), _c.Transition()
    with lock:
        code = lib.transition(handle, byref(t), byref(error))
        checked(code, error)
        return t.state[:t.nstates], t.rank, t.axis and t.axis.decode()


def note(handle):
    with lock:
        text = lib.note(handle)
    return text and text.decode("utf-8", "replace")


def derive(handle, script):
    """The flin_Variant that the script makes of this one."""
    return _handle(lib.derive, handle, script.encode(), _c.SCRIPT)


def release(handle):
    with lock:
        lib.release(handle)


class Argument:
    """An input, the result or a state: its name, axes ("t k") and domain."""
    __slots__ = "name", "role", "axes", "domain", "timed"
    name: str
    axes: "tuple[str, ...]"
    domain: str
    timed: bool

    def __init__(self, a):
        self.name, self.role = a.name.decode(), a.role
        axes = a.axes.decode().split()
        self.timed = axes[:1] == ["t"]
        self.axes = tuple(axes[self.timed:])
        self.domain = a.domain.decode()

    def __repr__(self):
        axes = " ".join(("t",) * self.timed + self.axes)
        return f"{self.name} \"{axes}\""


def arguments(handle):
    """All arguments of a variant: inputs, results, states."""
    a = _c.Arg()
    with lock:
        return [Argument(a) for i in range(lib.args(handle))
                if lib.arg(handle, i, byref(a))]
