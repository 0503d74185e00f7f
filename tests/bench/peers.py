"""flin beside flash-linear-attention and mamba on a GPU, in one run: forward,
eagerly and as a CUDA graph, forward + backward with the memory it takes, and
how far both are from the float64 step.

    python3 tests/bench/peers.py all [OPS [SHAPES]] | tee LOG
    python3 tests/bench/peers.py table LOG

or in parts, each with [OPS [SHAPES]], names with commas (default: all):

    warm, warm_train      fill both compile caches, a call of each
    time, train           milliseconds, forward; and with backward
    error, error_train    distances from the float64 step
    host                  a call's microseconds on the CPU

The peers are what is installed, or peers/fla_src and peers/mamba_src; with
HELION=DIR, a checkout of Helion, its linear-attention examples. Their ops
compile and tune for minutes: `all` warms them side by side (set
TRITON_CACHE_AUTOTUNING=1, so that they remember what they chose), then times
them one after another on each GPU. Medians; inputs rotate over more memory
than the L2 cache has; both get the same tensors."""
import json
import os
import queue
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from peer_ops import OPS, SHAPES, Op, normal
from timing import median
import torch                                        # noqa: E402

CACHE = 64 << 20                # more than the L2 of any GPU that is meant
TRAINED = "simple_gla", "gla", "delta", "gdn", "kda"    # where none is named
TRAIN_SHAPES = "S", "M", "96", "L"
LIMIT = 240                     # seconds of one process
SIDES = ("flin", "ours"), ("peer", "theirs")


def record(calls):
    """All of them as one graph; its outputs live as long."""
    for f in calls:
        f()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        graph.outputs = [f() for f in calls]
    return graph.replay


def timed(calls):
    """Milliseconds of one: eagerly, as a graph."""
    def each():
        for f in calls:
            f()
    def recorded():
        return median(record(calls)) / len(calls)
    return [median(each) / len(calls), attempt(recorded)]


def ratio(a, b):
    """None where either is a message."""
    return None if isinstance(a, str) or isinstance(b, str) else a / b


def attempt(f, *arguments):
    """Its result, or the first line of why there is none."""
    try:
        return f(*arguments)
    except Exception as e:
        torch.cuda.synchronize()
        return f"{type(e).__name__}: {e}".splitlines()[0][:70]


def copy_rate():
    """Bytes read and written in a millisecond by a large copy, on a GPU that
    does nothing else."""
    a = torch.empty(1 << 31, dtype=torch.uint8, device="cuda").random_()
    b = torch.empty_like(a)
    return 2 * a.numel() / median(lambda: b.copy_(a))


def show(**row):
    print("ROW " + json.dumps(row), flush=True)


def beside(row):
    """How many times the peer's milliseconds are ours."""
    if isinstance(row["flin"], list) and isinstance(row["peer"], list):
        row["x_eager"], row["x_graph"], *_ = map(ratio, row["peer"],
                                                 row["flin"])
    show(**row)


def time_op(op, shape, rate):
    x = op.make(*SHAPES[shape])
    size = sum(t.nbytes for t in x.values()) + normal(*SHAPES[shape]).nbytes
    sets = [x] + [op.make(*SHAPES[shape]) for _ in range(3 * CACHE // size)]
    row = {"op": op.name, "shape": shape, "floor_ms": size / rate}
    for who, side in SIDES:
        with torch.no_grad():
            row[who] = attempt(lambda: timed([getattr(op, side)(x)
                                              for x in sets]))
    if isinstance(row["flin"], list):
        row["percent_of_floor"] = ratio(100 * row["floor_ms"], row["flin"][1])
    beside(row)


# ---- with gradients ----


def unguarded():
    """flash-linear-attention refuses gated gradients on Hopper with Triton 3.4
    to 3.7.0, which come out wrong there: computed none the less, for their
    time, and for how wrong they are."""
    module = sys.modules.get("fla.ops.common.chunk_o")
    if module:
        module.TRITON_ABOVE_3_7_1 = True


def both_ways(f, x, dy):
    """Forward and backward: the gradients, in the order of the inputs."""
    leaves = [t.requires_grad_() for t in x.values()
              if torch.is_tensor(t) and t.is_floating_point()]
    return lambda: torch.autograd.grad(f(), leaves, dy, allow_unused=True)


def peak(f):
    """MiB at most allocated by f(), its results included."""
    f()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    f()
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def train_op(op, shape):
    x, dy = op.make(*SHAPES[shape]), normal(*SHAPES[shape])
    row = {"op": op.name, "train": shape}
    for who, side in SIDES:
        def taken():
            own = op.leaves(side, x)
            call = both_ways(op.called(side, own), own, dy)
            return [*timed([call]), peak(call)]
        row[who] = attempt(taken)
    beside(row)


def distance(a, b):
    return float((a.detach().cpu().double() - b).norm() / b.norm())


def error_op(op, train):
    """Relative L2 distances from the float64 step, of what both compute: of y,
    or of the gradients by name."""
    torch.manual_seed(1)
    shape = 1, 300, 2, 128
    x, row = op.make(*shape), {"op": op.name}
    dy = normal(*shape) if train else None
    want = op.truth(x, dy)
    for who, side in SIDES:
        def off():
            f = getattr(op, side)(x)
            return distance(f(), want) if not train else {
                n: d if d is None else distance(d, want[n])
                for n, d in zip(x, both_ways(f, x, dy)())}
        row[who + ("_d" if train else "_y")] = attempt(off)
    show(**row)


def warm(op, shape, train):
    x, dy = op.make(*SHAPES[shape]), normal(*SHAPES[shape])
    for who, side in SIDES:
        start = time.perf_counter()
        def call():
            own = op.leaves(side, x)
            f = op.called(side, own)
            return both_ways(f, own, dy)() if train else f()
        with torch.set_grad_enabled(train):
            o = attempt(call)
        torch.cuda.synchronize()
        show(op=op.name, warm=who, error=isinstance(o, str) and o,
             seconds=time.perf_counter() - start)


def host():
    """A prepared call of a small shape, without waiting for the GPU."""
    op = Op("simple_gla")
    x = op.make(1, 64, 1, 128)
    for name, grad in (("no_grad", False), ("autograd", True)):
        with torch.set_grad_enabled(grad):
            for t in x.values():
                t.requires_grad_(grad)
            f, laps = op.ours(x), []
            for _ in range(50):
                torch.cuda.synchronize()
                start = time.perf_counter()
                for _ in range(20):
                    f()
                laps.append((time.perf_counter() - start) / 20 * 1e6)
            show(host=name, us=statistics.median(laps), least=min(laps))


# ---- all of it, and what came out ----


def side_by_side(jobs, width):
    """This program with each of these arguments, so many at a time, shared
    out over the GPUs."""
    free = queue.Queue()
    for i in range(width):
        free.put(i % torch.cuda.device_count())
    def run(arguments):
        gpu = free.get()
        try:
            subprocess.run(
                [sys.executable, __file__, *arguments], timeout=LIMIT,
                env=dict(os.environ, CUDA_VISIBLE_DEVICES=str(gpu)))
        except subprocess.TimeoutExpired:
            show(late=arguments)
        free.put(gpu)
    with ThreadPoolExecutor(width) as pool:
        list(pool.map(run, jobs))


def everything(ops, shapes):
    trained = [n for n in ops if len(ops) < len(OPS) or n in TRAINED]
    jobs = [("warm_train", n, s) for n in trained for s in shapes
            if s in TRAIN_SHAPES]
    jobs += [("warm", n, s) for s in shapes for n in reversed(ops)]
    gpus = torch.cuda.device_count()
    side_by_side(jobs, min(os.cpu_count(), 16 * gpus))
    parts = [(n, names) for n, names in (
        ("time", ops), ("train", trained), ("error", ops),
        ("error_train", trained)) if names]
    side_by_side([(part, ",".join(names[i::gpus]), ",".join(shapes))
                  for part, names in parts for i in range(gpus)
                  if names[i::gpus]] + [("host",)], gpus)


def cell(value):
    if isinstance(value, list):
        return " ".join(map(cell, value))
    if isinstance(value, dict):
        return " ".join(f"{n} {cell(v)}" for n, v in value.items())
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def table(rows):
    """A line for each row of measurements; those of one kind together."""
    kinds = {}
    for row in rows:
        if "warm" not in row:
            kinds.setdefault(tuple(n for n in row if not n.startswith(
                ("x_", "percent"))), []).append(row)
    for kind in kinds.values():
        names = max((list(row) for row in kind), key=len)
        print("|", " | ".join(names), "|")
        for row in sorted(kind, key=lambda row: list(OPS).index(row["op"])
                          if "op" in row else 0):
            print("|", " | ".join(cell(row.get(n, "")) for n in names), "|")


def measure(part, ops, shapes):
    if part == "time":
        rate = copy_rate()
        show(copy_TB_per_s=rate / 1e9)
    for op in map(Op, ops):
        attempt(op.theirs, op.make(1, 64, 1, 128))
        unguarded()         # what that has loaded
        if part.startswith("error"):
            error_op(op, part == "error_train")
            continue
        for shape in shapes:
            if part == "time":
                failed = attempt(time_op, op, shape, rate)
            elif part == "train":
                failed = attempt(train_op, op, shape)
            else:
                failed = attempt(warm, op, shape, part == "warm_train")
            if failed:
                show(op=op.name, failed=f"{part} {shape}", why=failed)


def main(part="", ops="", shapes=""):
    if part == "table":
        with open(ops) as log:
            table([json.loads(line[4:]) for line in log
                   if line.startswith("ROW ")])
    elif part == "host":
        host()
    elif part == "all":
        everything(ops.split(",") if ops else list(OPS),
                   shapes.split(",") if shapes else list(SHAPES))
    elif part in ("warm", "warm_train", "time", "train", "error",
                  "error_train"):
        ops = ops.split(",") if ops else \
            TRAINED if "train" in part else list(OPS)
        shapes = shapes.split(",") if shapes else list(SHAPES)
        if "train" in part:
            shapes = [s for s in shapes if s in TRAIN_SHAPES]
        measure(part, ops, shapes)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(*sys.argv[1:])
