"""What the Python tests share: checks that count, and inputs for a variant."""
import importlib.metadata
import importlib.util
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "../../lang/python"))
import flin                                         # noqa: E402

CARDS = "--nccl" in sys.argv[1:]        # two processes, each on its GPU
passed = failed = 0
least = 1e-4 if CARDS else 0            # the laws' limit of float32 on a GPU
SIZES = {"k": 8, "v": 6, "p": 4, "m": 8}


def check(name, ok, why=""):
    global passed, failed
    if ok:
        passed += 1
    else:
        failed += 1
        print(f"not ok {name}: {why}")


def close(name, a, b, tolerance):
    """||a - b|| <= tolerance ||b||; NaN never is."""
    if hasattr(a, "detach"):
        a, b = a.detach().cpu(), b.detach().cpu()
    tolerance = max(tolerance, least)
    error = float(((a - b) ** 2).sum() / ((b ** 2).sum() + 1e-60)) ** 0.5
    check(name, tuple(a.shape) == tuple(b.shape) and error <= tolerance,
          f"{tuple(a.shape)} and {tuple(b.shape)} are {error:.1e} apart")


def here(t):
    """A module or a tensor, where this process computes."""
    return t.to("cuda" if CARDS else "cpu")


def backend(rank):
    """What torch.distributed goes by; of its GPU, each process takes one."""
    if CARDS:
        import torch
        torch.cuda.set_device(rank)
    return "nccl" if CARDS else "gloo"


def same(name, a, b):
    check(name, a.shape == b.shape and bool((a == b).all()), "other bits")


def refused(name, kind, text, f, /, *args, **named):
    """f raises this kind of exception, with this text in it."""
    try:
        f(*args, **named)
    except Exception as e:
        check(name, isinstance(e, kind) and text in str(e),
              f"{type(e).__name__}: {e}")
    else:
        check(name, False, "accepted")


def shapes(variant, B=2, T=70, H=2):
    """By name: the shape of each input, its domain."""
    found = {}
    for a in variant.inputs:
        lead = (B, T, H) if a.timed else (H,)
        found[a.name] = lead + tuple(
            variant.sizes[axis] or SIZES.get(axis, 4) for axis in a.axes), \
            a.domain
    return found


def drawn(shape, domain, dtype=None, slow=1):
    """A tensor of PyTorch's of that domain; gates are divided by `slow`."""
    import torch
    import flin.nn
    x = flin.nn.ACTIVATIONS[domain](torch.randn(shape, dtype=dtype))
    return x / slow if domain == "log_decay" else x


def wants_custom_op():
    """Ends the script as skipped without a PyTorch that has them."""
    if not importlib.util.find_spec("torch"):
        print("skip no PyTorch for", sys.executable)
        sys.exit()
    version = importlib.metadata.version("torch")
    if tuple(int(n) for n in version.split(".")[:2]) < (2, 4):
        print("skip PyTorch", version, "has no torch.library.custom_op")
        sys.exit()


def end():
    print(f"{passed} passed, {failed} failed")
    sys.exit(failed != 0)
