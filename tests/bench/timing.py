"""What the benches on a GPU share."""
import contextlib
import fcntl
import os
import statistics

import torch

HELD = []                       # the lock, where this process has its turn


@contextlib.contextmanager
def turn():
    """The GPU is this process's alone, among those that FLIN_TURN (the start
    of a lock's name) is set for: one compiles while another is timed."""
    name = os.environ.get("FLIN_TURN")
    if not name or HELD:
        yield
        return
    gpu = os.environ.get("CUDA_VISIBLE_DEVICES", "0")
    with open(f"{name}.{gpu}", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        HELD.append(lock)
        try:
            yield
        finally:
            HELD.pop()


def median(f, n=15):
    """Milliseconds of f() on the GPU."""
    events = [torch.cuda.Event(enable_timing=True) for _ in range(n + 1)]
    for _ in range(3):
        f()
    events[0].record()
    for e in events[1:]:
        f()
        e.record()
    torch.cuda.synchronize()
    return statistics.median(a.elapsed_time(b)
                             for a, b in zip(events, events[1:]))


def recorded(f, times=1):
    """Milliseconds of f as a CUDA graph; of so many f's in one, each: what
    takes less than a host needs to launch a graph is not seen otherwise."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            f()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(times):
            f()
    return median(graph.replay) / times
