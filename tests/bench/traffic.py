"""The bytes that flin and a peer move through a GPU's memory, and the time of
their kernels, forward and back, as ncu counts them:

    python3 tests/bench/traffic.py [OPS [SHAPES]]

OPS: names of peer_ops.py with commas (gla,mamba2,delta); SHAPES: S, M, 96, L
(96). A row each: forward and backward, of both, and ratios flin / peer. ncu
wants the GPU's counters (root); clocks are left as they are."""
import csv
import io
import subprocess
import sys

METRICS = ("dram__bytes_read.sum", "dram__bytes_write.sum",
           "gpu__time_duration.sum")
SIDES = "ours", "theirs"


def call(name, shape, side, way):
    """One pass that the profiler sees, behind two that it does not."""
    import torch
    import peer_ops
    import peers
    op = peer_ops.Op(name)
    x, dy = op.make(*peer_ops.SHAPES[shape]), \
        peer_ops.normal(*peer_ops.SHAPES[shape])
    op.theirs(op.make(1, 64, 1, 128))
    peers.unguarded()
    own = op.leaves(side, x)
    leaves = [t.requires_grad_() for t in own.values()
              if torch.is_tensor(t) and t.is_floating_point()]
    f = op.called(side, own)
    cuda = torch.cuda.cudart()
    for turn in range(3):
        torch.cuda.synchronize()
        if turn == 2 and way == "forward":
            cuda.cudaProfilerStart()
        y = f()
        torch.cuda.synchronize()
        if turn == 2:
            (cuda.cudaProfilerStop if way == "forward" else
             cuda.cudaProfilerStart)()
        torch.autograd.grad(y, leaves, dy, allow_unused=True)
        torch.cuda.synchronize()
    cuda.cudaProfilerStop()


def metered(file, *words):
    """Of each kernel that `file` launches between cudaProfilerStart and Stop:
    its name, and what METRICS say."""
    out = subprocess.run(
        ["ncu", "--clock-control", "none", "--profile-from-start", "off",
         "--csv", "--print-units", "base", "--metrics", ",".join(METRICS),
         sys.executable, file, *words],
        capture_output=True, text=True, check=False)
    lines = out.stdout.splitlines()
    head = next((i for i, s in enumerate(lines) if s.startswith('"ID"')), None)
    if head is None:
        raise RuntimeError((out.stdout + out.stderr)[-400:])
    kernels = {}
    for row in csv.DictReader(io.StringIO("\n".join(lines[head:]))):
        if row["Metric Name"] in METRICS:
            name, found = kernels.setdefault(
                row["ID"], (row["Kernel Name"], dict.fromkeys(METRICS, 0.0)))
            found[row["Metric Name"]] = float(
                row["Metric Value"].replace(",", ""))
    return list(kernels.values())


def summed(kernels):
    """Bytes, nanoseconds, and how many they are."""
    read, written, spent = (sum(found[m] for _, found in kernels)
                            for m in METRICS)
    if not read + written:
        raise RuntimeError("no kernel was counted")
    return read + written, spent, len(kernels)


def counted(*what):
    """Of the kernels of one pass."""
    return summed(metered(__file__, "call", *what))


def main(ops="gla,mamba2,delta", shapes="96"):
    print("| op | shape | way | flin: GB | ms | kernels | peer: GB | ms |"
          " kernels | bytes | time |", flush=True)
    for name in ops.split(","):
        for shape in shapes.split(","):
            sums = {side: [0, 0, 0] for side in SIDES}
            for way in ("forward", "backward", "both"):
                if way != "both":
                    now = {side: counted(name, shape, side, way)
                           for side in SIDES}
                    for side in SIDES:
                        sums[side] = [a + b for a, b in
                                      zip(sums[side], now[side])]
                else:
                    now = sums
                cells = [f"{b / 1e9:.3f} | {t / 1e6:.3f} | {n}"
                         for b, t, n in now.values()]
                (b0, t0, _), (b1, t1, _) = now.values()
                print(f"| {name} | {shape} | {way} | {' | '.join(cells)} |"
                      f" {b0 / b1:.2f} | {t0 / t1:.2f} |", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["call"]:
        call(*sys.argv[2:])
    else:
        main(*sys.argv[1:])
