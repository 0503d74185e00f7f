"""What Triton's kernels cost before they are timed: the configurations of a
kernel that is tuned are compiled side by side, each is timed for a moment, and
the one that won is kept in a folder, from one process to the next.

    import tuning; tuning.begin()       before the kernels are first called

FLIN_TUNED names the folder (else beside Triton's cache), FLIN_TUNERS the
threads (else 8). A choice is for the kernel's text, its configurations and
what it is tuned by; a GPU of another name has its own."""
import fcntl
import functools
import hashlib
import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from timing import turn

WARM, TIMED = 5, 20             # milliseconds of each configuration


def folder():
    return os.environ.get("FLIN_TUNED") or os.path.join(os.environ.get(
        "TRITON_CACHE_DIR", os.path.expanduser("~/.triton")), "tuned")


def key_of(tuner, args, kwargs):
    """As Autotuner.run has it."""
    named = {n: a for n, a in {**dict(zip(tuner.arg_names, args)),
                               **kwargs}.items() if n in tuner.arg_names}
    return tuple([named[k] for k in tuner.keys if k in named]
                 + [str(a.dtype) for a in named.values()
                    if hasattr(a, "dtype")])


def path_of(tuner, key):
    import torch
    fn = tuner.fn
    while not hasattr(fn, "cache_key"):
        fn = fn.fn
    words = [torch.cuda.get_device_name(), fn.cache_key, repr(key)]
    words += [str(c) for c in tuner.configs]
    name = hashlib.sha256("\n".join(words).encode()).hexdigest()[:24]
    return os.path.join(folder(), f"{fn.__name__[:80]}.{name}.json")


def chosen(tuner, path):
    """The configuration that is kept there; None: there is none."""
    try:
        with open(path, encoding="utf-8") as f:
            kept = json.load(f)
    except (OSError, ValueError):
        return None
    return next((c for c in tuner.configs if str(c) == kept), None)


def compile_all(tuner, pool, args, kwargs):
    from triton.runtime._async_compile import AsyncCompileMode
    tuner.nargs = dict(zip(tuner.arg_names, args))
    given = {n: a for n, a in kwargs.items() if n != "warmup"}
    try:
        with AsyncCompileMode(pool, ignore_errors=True):
            for config in tuner.prune_configs(kwargs):
                tuner.fn.warmup(*args, **given, **config.all_kwargs())
    except Exception as e:      # Triton's own tuning says what is wrong
        print(f"not side by side: {type(e).__name__}: {e}"[:200], flush=True)


def timed_in_turn(bench):
    def timed(*args, **kwargs):
        with turn():
            return bench(*args, **kwargs)
    return timed


def begin():
    import triton.testing
    from triton.runtime.autotuner import Autotuner
    run = Autotuner.run
    if run.__name__ == "tuned":
        return
    pool = ThreadPoolExecutor(int(os.environ.get("FLIN_TUNERS", 8)))
    os.makedirs(folder(), exist_ok=True)
    triton.testing.do_bench = timed_in_turn(functools.partial(
        triton.testing.do_bench, warmup=WARM, rep=TIMED))

    def tuned(self, *args, **kwargs):
        if len(self.configs) < 2:
            return run(self, *args, **kwargs)
        key = key_of(self, args, kwargs)
        if key in self.cache:
            return run(self, *args, **kwargs)
        path = path_of(self, key)
        with open(path + ".lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)    # ranks of one machine wait
            config = chosen(self, path)
            if config is None:
                from_ = time.monotonic()
                compile_all(self, pool, args, kwargs)
                result = run(self, *args, **kwargs)
                with open(f"{path}.{os.getpid()}", "w", encoding="utf-8") as f:
                    json.dump(str(self.best_config), f)
                os.replace(f.name, path)
                print(f"# {self.fn.__name__}: {len(self.configs)} in "
                      f"{time.monotonic() - from_:.0f} s", file=sys.stderr,
                      flush=True)
                return result
        self.cache[key] = config
        return run(self, *args, **kwargs)
    Autotuner.run = tuned
