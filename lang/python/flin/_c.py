"""flin.h through ctypes: the library, its structs, its errors."""
import ctypes
import ctypes.util
import os
import re
from ctypes import (CFUNCTYPE, POINTER, Structure, c_char_p, c_double, c_int,
                    c_int64, c_size_t, c_uint32, c_uint64, c_void_p)

SCRIPT = b"flin.python"         # what the scripts of this package are called
F32, BF16, F16, F64, I32, I64 = range(6)
INPUT, OUTPUT, STATE = range(3)
FORWARD, BACKWARD, STEP, REFERENCE, REFERENCE_BACKWARD, VERIFY = range(6)
TEXT, JSON = range(2)
RANK = 8                        # that a tensor has at most
OK, ERROR, MEMORY, LIMIT, INTERRUPT, DEVICE, INTERNAL = range(7)

INTERRUPTED = CFUNCTYPE(c_int, c_void_p)
LOG = CFUNCTYPE(None, c_void_p, c_char_p)


class ErrorText(Structure):
    _fields_ = [("code", c_int), ("line", c_int), ("file", ctypes.c_char * 128),
                ("message", ctypes.c_char * 1024),
                ("help", ctypes.c_char * 512), ("text", ctypes.c_char * 2560)]


class Options(Structure):
    _fields_ = [("size", c_size_t), ("instructions", c_uint64),
                ("memory", c_size_t), ("nodes", c_uint32), ("trusted", c_int),
                ("alloc", c_void_p), ("alloc_ud", c_void_p),
                ("interrupted", INTERRUPTED), ("interrupted_ud", c_void_p),
                ("log", LOG), ("log_ud", c_void_p), ("progress", c_void_p),
                ("progress_ud", c_void_p), ("parallel", c_void_p),
                ("parallel_ud", c_void_p), ("warn", LOG),
                ("warn_ud", c_void_p)]


class Tensor(Structure):
    _fields_ = [("data", c_void_p), ("dtype", c_int), ("rank", c_int),
                ("shape", c_int64 * RANK), ("stride", c_int64 * RANK)]


class Bind(Structure):
    _fields_ = [("name", c_char_p), ("tensor", Tensor)]


class Arg(Structure):
    _fields_ = [("name", c_char_p), ("role", c_int), ("axes", c_char_p),
                ("domain", c_char_p)]


class Saved(Structure):
    _fields_ = [("data", c_void_p), ("bytes", c_size_t),
                ("plan", c_uint64), ("call", c_uint64), ("place", c_uint64)]


class Call(Structure):
    _fields_ = [("size", c_size_t), ("input", POINTER(Bind)),
                ("ninputs", c_int), ("initial", POINTER(Bind)),
                ("ninitial", c_int), ("final", POINTER(Bind)),
                ("nfinal", c_int), ("y", Tensor),
                ("cu_seqlens", c_void_p), ("nseq", c_int64), ("chunk", c_int),
                ("threads", c_int), ("backend", c_char_p),
                ("stream", c_void_p), ("workspace", c_void_p),
                ("workspace_size", c_size_t), ("cu_seqlens_device", c_void_p),
                ("saved", POINTER(Saved)), ("validate", c_int),
                ("plan", c_char_p), ("checkpoint", c_int),
                 ("result", POINTER(Bind)), ("nresult", c_int),
                 ("state_index", Tensor), ("begun", c_int),
                 ("begins", c_int), ("in_parts", c_int), ("spend", c_int),
                 ("memory", c_int64)]


class Grad(Structure):
    _fields_ = [("size", c_size_t), ("dy", Tensor), ("dfinal", POINTER(Bind)),
                ("ndfinal", c_int), ("dinput", POINTER(Bind)),
                ("ndinput", c_int), ("dinitial", POINTER(Bind)),
                ("ndinitial", c_int), ("add", c_int),
                ("dresult", POINTER(Bind)), ("ndresult", c_int)]


class Transition(Structure):
    _fields_ = [("carry", c_int), ("rank", c_int), ("axis", c_char_p),
                ("nstates", c_int), ("state", c_int * 8)]


# Name, result, arguments; handles are void pointers, a flin_Error comes last.
FUNCTIONS = [
    ("version", c_int, []),
    ("open", c_void_p, [POINTER(Options), c_void_p]),
    ("close", None, [c_void_p]),
    ("load_file", c_void_p, [c_void_p, c_char_p, c_void_p]),
    ("load_string", c_void_p, [c_void_p, c_char_p, c_char_p, c_void_p]),
    ("stdlib", c_void_p, [c_void_p, c_char_p, c_void_p]),
    ("derive", c_void_p, [c_void_p, c_char_p, c_char_p, c_void_p]),
    ("stdlib_name", c_char_p, [c_void_p, c_int]),
    ("release", None, [c_void_p]),
    ("name", c_char_p, [c_void_p]),
    ("args", c_int, [c_void_p]),
    ("arg", c_int, [c_void_p, c_int, POINTER(Arg)]),
    ("axis_size", c_int64, [c_void_p, c_char_p]),
    ("shape", c_int, [c_void_p, c_void_p, c_int, POINTER(Tensor), c_void_p]),
    ("prepare", c_void_p, [c_void_p, c_int, c_void_p, c_void_p]),
    ("reference", c_int, [c_void_p, c_void_p, c_void_p]),
    ("reference_backward", c_int, [c_void_p, c_void_p, c_void_p, c_void_p]),
    ("summary", c_int, [c_void_p, c_void_p, POINTER(Tensor), c_void_p]),
    ("transition", c_int, [c_void_p, POINTER(Transition), c_void_p]),
    ("workspace", c_int64, [c_void_p, c_void_p]),
    ("run", c_int, [c_void_p, c_void_p, c_void_p, c_void_p]),
    ("kernel_saved", c_int64, [c_void_p, c_void_p]),
    ("seconds", c_double, [c_void_p, c_int, c_void_p, c_void_p]),
    ("kernel_note", c_char_p, [c_void_p]),
    ("form", c_char_p, [c_void_p, c_void_p]),
    ("note", c_char_p, [c_void_p]),
    ("describe", c_char_p, [c_void_p, c_int, c_void_p]),
    ("report", c_char_p, [c_void_p, c_char_p, c_char_p, c_int, c_void_p]),
    ("free", None, [c_void_p]),
]


class Error(ValueError):
    """What flin refuses: a script, or a call's arguments. `file` and `line`
    say where in the script ("" and 0: not there), `help` what is right."""

    def __init__(self, text, message="", file="", line=0, help=""):
        super().__init__(text)
        self.message, self.file, self.line = message or text, file, line
        self.help = help


class ArgumentError(Error, TypeError):
    """Arguments that the call does not take, or that it lacks."""


def failure(e):
    """The exception for a flin_Error that has been filled in."""
    text, message, file, help = (s.decode("utf-8", "replace") for s in
                                 (e.text, e.message, e.file, e.help))
    line = e.line
    if file == SCRIPT.decode():         # no line of the user's
        text, file, line = message + "\n  help: " * bool(help) + help, "", 0
    if e.code == MEMORY:
        return MemoryError(text)
    if e.code == INTERRUPT:
        return KeyboardInterrupt(text)
    if e.code in (DEVICE, INTERNAL):
        return RuntimeError(text)
    return Error(text, message, file, line, help)


def candidates():
    """Where libflin.so may be, in order."""
    here = os.path.dirname(os.path.abspath(__file__))
    if os.environ.get("FLIN_LIB"):
        return [os.environ["FLIN_LIB"]]
    return [p for p in (os.path.join(here, "libflin.so"),
                        os.path.join(here, "../../../build/libflin.so"))
            if os.path.exists(p)] + [ctypes.util.find_library("flin")
                                     or "libflin.so.0"]


def own_version():
    """Of flin.h, major and minor: as the wheel was made, or in the tree."""
    try:
        from ._version import version   # type: ignore[import]
    except ImportError:
        here = os.path.dirname(os.path.abspath(__file__))
        with open(os.path.join(here, "../../flin.h")) as f:
            return tuple(map(int, re.findall(
                r"define FLIN_VERSION_M\w+ (\d+)", f.read())))
    return tuple(map(int, version.split(".")[:2]))


def open_library():
    tried = []
    for path in candidates():
        try:
            lib = ctypes.CDLL(path)
            break
        except OSError as e:
            tried.append(str(e))
    else:
        raise ImportError("flin: libflin.so is not to be had: build it (make) "
                          "or name it in FLIN_LIB\n  " + "\n  ".join(tried))
    for name, result, arguments in FUNCTIONS:
        f = getattr(lib, "flin_" + name, None)
        if f is None:
            raise ImportError(f"flin: {path} is too old: no flin_{name}")
        f.restype, f.argtypes = result, arguments
        setattr(lib, name, f)
    number = lib.version()
    found = number // 10000, number // 100 % 100
    if found != own_version():
        raise ImportError(f"flin: {path} is version %d.%d; this package is for"
                          " %d.%d" % (*found, *own_version()))
    return lib


lib = open_library()
