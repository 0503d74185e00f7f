"""What a step of train_24.py costs: the kernels that take its time, and what is
there at its peak of memory."""
import collections
import itertools
import os
import re

import torch


def kernels_of(run, rows, most):
    """Of one more step: the kernels that take longest, all of a name as one."""
    from torch.profiler import ProfilerActivity, profile
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        run.step(rows)
        torch.cuda.synchronize()
    found = collections.defaultdict(lambda: [0, 0])
    for e in seen.events():
        if e.device_type.name == "CUDA":
            one = found[re.sub(r"<.*|\(.*", "", e.name)[:60]]
            one[0] += 1
            one[1] += e.device_time
    rest = sorted(found.items(), key=lambda x: -x[1][1])
    print(f"{sum(n for _, (n, _) in rest)} kernels, "
          f"{sum(us for _, (_, us) in rest) / 1000:.2f} ms a step")
    for name, (n, us) in rest[:most]:
        print(f"  {us / 1000:8.3f} ms {n:5}  {name}", flush=True)


def place_of(frames):
    """The line of train_24.py, or of flin's, that asked for memory."""
    for mark in "train_24.py", "train_24_adamw.py", "flin":
        for f in frames:
            if mark in f["filename"] and f["line"]:
                return f"{os.path.basename(f['filename'])}:{f['line']} " \
                    f"{f['name']}"
    return "PyTorch's way back"


def memory_of(run, rows, most):
    """Of one more step, as calls: what is there at its peak."""
    memory = torch.cuda.memory
    run.optimiser.zero_grad()
    torch.cuda.synchronize()
    before = memory.memory_allocated()
    memory._record_memory_history("all", context="alloc", stacks="python")
    run.one(rows)
    torch.cuda.synchronize()
    trace = memory._snapshot()["device_traces"][torch.cuda.current_device()]
    memory._record_memory_history(None)
    events = [e for e in trace if e["action"] in ("alloc", "free_completed")]
    now = [0, *itertools.accumulate(
        e["size"] if e["action"] == "alloc" else -e["size"] for e in events)]
    live = {}
    for e in events[:now.index(max(now))]:
        if e["action"] == "alloc":
            live[e["addr"]] = e
        else:
            live.pop(e["addr"], None)
    found = collections.defaultdict(collections.Counter)
    for e in live.values():
        found[place_of(e["frames"])][e["size"]] += 1
    print(f"peak {(before + max(now)) / 2**20:.0f} MB, of which "
          f"{before / 2**20:.0f} were there before")
    rest = sorted(((sum(size * n for size, n in sizes.items()), sizes, name)
                   for name, sizes in found.items()), key=lambda x: -x[0])
    for size, sizes, name in rest[:most]:
        each = ", ".join(f"{n} x {size / 2**20:.1f}"
                         for size, n in sizes.most_common(3))
        print(f"  {size / 2**20:8.1f} MB  {name}: {each}", flush=True)
