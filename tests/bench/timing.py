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
