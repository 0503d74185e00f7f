"""flin's decoding on a GPU beside a copy of the state, in one run: a token of
each of B sequences, the state float32, read and written in place.

    python3 tests/bench/decode.py [VARIANTS] [B=64 H=16 D=128] [index]

VARIANTS: names with commas, or all. With `index`, states lie in a pool of twice
as many, and an index names each sequence's. Medians of many calls in one CUDA
graph, in microseconds, each on the next of four states, so that none finds its
own in a cache. `floor`: the bytes that a step cannot do without, at the rate of
the copy, which is torch's of the same matrices into others."""
import statistics
import sys

import torch

import tree                                         # noqa: F401
import flin.nn

USUAL = "gated_deltanet", "gla", "kda", "mamba2", "rwkv7"
CALLS, LAYERS = 20, 4           # in a graph; states in turn


def of_domain(domain, shape):
    """What an input makes sense of: gates in float32, as layers give them."""
    half = domain in ("normal", "unit_norm", "angle")
    x = flin.nn.ACTIVATIONS[domain](torch.randn(shape, device="cuda"))
    return x.bfloat16() if half else x


def shape(v, axes, D):
    """Angles are of pairs; ranks as the variant says."""
    return tuple(v.sizes.get(a) or (D // 2 if a == "p" else D) for a in axes)


def inputs_of(v, B, H, D):
    lead = {True: (B, 1, H), False: (H,)}
    return {a.name: of_domain(a.domain, lead[a.timed] + shape(v, a.axes, D))
            for a in v.inputs}


def states_of(v, pool, H, D):
    return {s.name: torch.zeros((pool, H) + shape(v, s.axes, D), device="cuda")
            for s in v.states}


def timed(f):
    """Microseconds of one f(layer) among many in a graph."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for i in range(LAYERS):
            f(i)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(CALLS):
            f(i % LAYERS)
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
    names = (USUAL if not names else flin.stdlib if names[0] == "all"
             else names[0].split(","))
    more = {}
    if paged:
        more["state_index"] = torch.randperm(pool, device="cuda")[:B].int()
    one = [torch.zeros(B, H, D, D, device="cuda") for _ in range(2 * LAYERS)]
    copied = timed(lambda i: one[LAYERS + i].copy_(one[i]))
    bytes_of = 2 * size(one[0])
    print(f"B {B}, H {H}, K = V = {D}, {torch.cuda.get_device_name()}: a copy "
          f"of a matrix a head {copied:.1f} us, {1e-6 * bytes_of / copied:.2f} "
          "TB/s")
    for name in names:
        v = flin.load(name)
        x = inputs_of(v, B, H, D)
        states = [states_of(v, pool, H, D) for _ in range(LAYERS)]

        def step(i):
            return v.step(**x, state=states[i], inplace=True, **more)[0]
        t = timed(step)
        moved = (2 * sum(map(size, states[0].values())) * B // pool
                 + size(step(0)) + sum(map(size, x.values())))
        floor = copied * moved / bytes_of
        print(f"{name:17} {t:6.1f} us, {t / copied:.3f} of the copy, floor "
              f"{floor:.1f}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
