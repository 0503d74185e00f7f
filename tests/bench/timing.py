"""What the benches on a GPU share."""
import statistics

import torch


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
