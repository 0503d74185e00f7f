"""flin's decoding on a GPU beside a copy of the state, in one run: a token of
each of B sequences, the state float32, read and written in place.

    python3 tests/bench/decode.py [VARIANTS] [B=64 H=16 D=128] [index]

VARIANTS: names with commas. With `index`, states lie in a pool of twice as
many, and an index names each sequence's. Medians of many calls in one CUDA
graph, in microseconds. `floor`: the bytes that a step cannot do without, at
the rate of the copy, which is torch's of the same state into another."""
import os
import statistics
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "../../lang/python"))
import torch                                        # noqa: E402

import flin                                         # noqa: E402

USUAL = "gated_deltanet", "gla", "kda", "mamba2", "rwkv7"
CALLS = 20                      # in a graph


def of_domain(domain, shape):
    """What an input makes sense of: gates in float32, as layers give them."""
    x = torch.randn(shape, device="cuda")
    if domain == "log_decay":
        return -torch.rand(shape, device="cuda")
    if domain in ("unit", "positive"):
        return torch.rand(shape, device="cuda") * 0.9 + 0.05
    if domain == "unit_norm":
        x = torch.nn.functional.normalize(x, dim=-1)
    return x.bfloat16()


def inputs_of(v, B, H, D):
    lead = {True: (B, 1, H), False: (H,)}
    return {a.name: of_domain(a.domain, lead[a.timed] + (D,) * len(a.axes))
            for a in v.inputs}


def timed(f):
    """Microseconds of one f() among many in a graph."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        f()
        f()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            f()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(12)]
    graph.replay()
    events[0].record()
    for e in events[1:]:
        graph.replay()
        e.record()
    torch.cuda.synchronize()
    return 1e3 / CALLS * statistics.median(
        a.elapsed_time(b) for a, b in zip(events, events[1:]))


def size(t):
    return t.numel() * t.element_size()


def main(words):
    sizes = dict(w.split("=") for w in words if "=" in w)
    B, H, D = (int(sizes.get(n, d)) for n, d in (("B", 64), ("H", 16),
                                                 ("D", 128)))
    paged = "index" in words
    names = [w for w in words if "=" not in w and w != "index"]
    pool = B * (2 if paged else 1)
    state = torch.zeros(pool, H, D, D, device="cuda")
    one = state[:B]
    other = torch.empty_like(one)
    copied = timed(lambda: other.copy_(one))
    print(f"B {B}, H {H}, K = V = {D}, {torch.cuda.get_device_name()}: a copy "
          f"of the state {copied:.1f} us, {2e-6 * size(one) / copied:.2f} "
          "TB/s")
    more = {}
    if paged:
        more["state_index"] = torch.randperm(pool, device="cuda")[:B].int()
    for name in names[0].split(",") if names else USUAL:
        v = flin.load(name)
        x = inputs_of(v, B, H, D)
        state.zero_()

        def step():
            return v.step(**x, state=state, inplace=True, **more)[0]
        t = timed(step)
        floor = copied * (2 * size(one) + size(step())
                          + sum(map(size, x.values()))) / (2 * size(one))
        print(f"{name:16} {t:6.1f} us, floor {floor:.1f}, {t / copied:.3f} of "
              "the copy", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
