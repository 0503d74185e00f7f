"""Softmax attention by flin beside PyTorch's (flash, and cuDNN's) and
FlexAttention, compiled: causal, one window, and a mask over all pairs that has
no softmax. Milliseconds as CUDA graphs, forward and both ways; rates count half
of all pairs, two products forward and five backward; errors are of float64's
largest number, at few tokens.

    python3 tests/bench/attention.py [tokens=16384 T=2048,4096,8192,16384 H=16
                                      D=128 window=256 seconds=80 flex=1]

B is tokens / T. FlexAttention comes last, as it compiles for each T, and not
where `seconds` have gone by. Each row is one line."""
import sys
import time

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import tree                                         # noqa: F401
import flin
from timing import median, recorded

CAUSAL = """
return require "flin".variant { name = "attention", normalise = "softmax" }
"""
WINDOW = """
return require "flin".variant { name = "window", normalise = "softmax",
  mask = function (i, j)
    if i < j or i - j >= %d then return 0 end
    return 1
  end }
"""
PAIRS = """
return require "flin".variant { name = "hyperbola", mode = "quadratic",
  mask = function (i, j)
    if i < j then return 0 end
    return 1 / (i - j + 1)
  end }
"""
BEGUN = time.monotonic()


def options(words):
    o = {"tokens": 16384, "T": [2048, 4096, 8192, 16384], "H": 16, "D": 128,
         "window": 256, "seconds": 80, "flex": 1}
    for word in words:
        name, _, value = word.partition("=")
        if name not in o or not value:
            sys.exit(f"{word}: one of {', '.join(o)} = number is wanted")
        numbers = [int(n) for n in value.split(",")]
        o[name] = numbers if name == "T" else numbers[0]
    return o


def timed(f):
    """Median milliseconds of f() in a CUDA graph; where none can be recorded,
    as it is."""
    try:
        return recorded(f)
    except Exception as e:
        print(f"  (no graph: {str(e).splitlines()[0][:70]})", flush=True)
        torch.cuda.synchronize()
        return median(f)


def tensors(B, T, H, D, dtype=torch.bfloat16):
    g = torch.Generator(device="cuda").manual_seed(T)
    return [torch.randn(B, T, H, D, device="cuda", generator=g).to(dtype)
            for _ in range(4)]          # q, k, v, dy


def both_ways(f, q, k, v, dy):
    """A function that runs f forward and backward."""
    x = [t.detach().clone().requires_grad_() for t in (q, k, v)]

    def run():
        return torch.autograd.grad(f(*x), x, dy)
    return run


def row(name, what, B, T, H, D, f, x, pairs=None):
    """One line; pairs: of a head, as all but half of them."""
    try:
        with torch.no_grad():
            forward = timed(lambda: f(*x[:3]))
        torch.cuda.reset_peak_memory_stats()
        run = both_ways(f, *x)
        run()
        torch.cuda.synchronize()
        peak = torch.cuda.max_memory_allocated() / 2**30
        both = timed(run)
    except Exception as e:
        print(f"{name:10} {what:12} T={T:<6} "
              f"{type(e).__name__}: {str(e).splitlines()[0][:90]}",
              flush=True)
        torch.cuda.synchronize()
        return None
    work = 4e-9 * B * H * D * (T * T / 2 if pairs is None else pairs)
    back = max(both - forward, 1e-6)
    print(f"{name:10} {what:12} B={B} T={T:<6} forward {forward:8.3f} ms "
          f"{work / forward:5.0f} TFLOP/s   both {both:8.3f} ms   backward "
          f"{back:8.3f} ms {2.5 * work / back:5.0f} TFLOP/s   "
          f"peak {peak:5.2f} GiB", flush=True)
    return forward, back


# ---- what is measured ----

def flin_of(text, **how):
    variant = flin.load(text)
    return lambda q, k, v: variant(q, k, v, **how)[0]


def sdpa_of(backend):
    def run(q, k, v):
        with sdpa_kernel(backend):
            y = F.scaled_dot_product_attention(
                q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2),
                is_causal=True)
        return y.transpose(1, 2)
    return run


flash = sdpa_of(SDPBackend.FLASH_ATTENTION)
cudnn = sdpa_of(SDPBackend.CUDNN_ATTENTION)


def flex_of(T, window):
    from torch.nn.attention.flex_attention import (create_block_mask,
                                                   flex_attention)

    def mask(b, h, i, j):
        near = i >= j
        return near & (i - j < window) if window else near
    block = create_block_mask(mask, None, None, T, T, device="cuda")
    compiled = torch.compile(flex_attention, dynamic=False)

    def run(q, k, v):
        y = compiled(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2),
                     block_mask=block)
        return y.transpose(1, 2)
    return run


# ---- errors ----

def exact(q, k, v, window=None, softmax=True):
    """The definition, in the type of its tensors."""
    T = q.shape[1]
    s = torch.einsum("bihd,bjhd->bhij", q, k)
    i = torch.arange(T, device=q.device)
    d = i[:, None] - i[None, :]
    keep = (d >= 0) & (d < (window or T))
    if softmax:
        s = (s * q.shape[-1] ** -0.5).masked_fill(~keep, -torch.inf)
        w = torch.softmax(s, -1)
    else:
        w = s * torch.where(keep, 1 / (d.clamp(min=0) + 1), 0)
    return torch.einsum("bhij,bjhd->bihd", w, v)


def errors(name, f, H, D, T=640, **how):
    q, k, v, dy = tensors(1, T, H, D)
    x = [t.double().requires_grad_() for t in (q, k, v)]
    y = exact(*x, **how)
    want = [y, *torch.autograd.grad(y, x, dy.double())]
    try:
        x = [t.detach().clone().requires_grad_() for t in (q, k, v)]
        y = f(*x)
        got = [y, *torch.autograd.grad(y, x, dy)]
        again = torch.autograd.grad(f(*x), x, dy)
        same = all(torch.equal(a, b) for a, b in zip(got[1:], again))
    except Exception as e:
        print(f"error      {name:12} {type(e).__name__}: "
              f"{str(e).splitlines()[0][:90]}", flush=True)
        return
    e = [((a.double() - b).abs().max() / b.abs().max()).item()
         for a, b in zip(got, want)]
    print(f"error      {name:12} y {e[0]:.1e} dq {e[1]:.1e} dk {e[2]:.1e} "
          f"dv {e[3]:.1e}   the same bits twice: {same}", flush=True)


def main():
    o = options(sys.argv[1:])
    H, D, window = o["H"], o["D"], o["window"]
    torch.manual_seed(0)
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, "
          f"bfloat16, H {H}, D {D}", flush=True)
    causal = flin_of(CAUSAL)
    near, pairs = flin_of(WINDOW % window), flin_of(PAIRS, scale=1)
    errors("flin", causal, 2, D)
    errors("flash", flash, 2, D)
    errors("window", near, 2, D, window=window)
    errors("hyperbola", pairs, 2, D, softmax=False)
    found = {}
    for T in o["T"]:
        B = max(1, o["tokens"] // T)
        x = tensors(B, T, H, D)
        found["flash", T] = row("flash", "causal", B, T, H, D, flash, x)
        found["cudnn", T] = row("cudnn", "causal", B, T, H, D, cudnn, x)
        found["flin", T] = row("flin", "causal", B, T, H, D, causal, x)
        for peer in "flash", "cudnn":
            a, b = found[peer, T], found["flin", T]
            if a and b:
                print(f"           flin's rate of {peer}'s: forward "
                      f"{a[0] / b[0]:.2f}, backward {a[1] / b[1]:.2f}",
                      flush=True)
    T = max(o["T"])
    B = max(1, o["tokens"] // T)
    x = tensors(B, T, H, D)
    inside = T * window - window * (window - 1) / 2
    row("flin", f"window {window}", B, T, H, D, near, x, inside)
    row("flin", "hyperbola", B, T, H, D, pairs, x)
    wanted = [(T, None) for T in o["T"]] + [(T, window)]
    for T, w in wanted if o["flex"] else []:
        if time.monotonic() - BEGUN > o["seconds"]:
            print("no time left for FlexAttention", flush=True)
            break
        B = max(1, o["tokens"] // T)
        x = tensors(B, T, H, D)
        try:
            f = flex_of(T, w)
        except Exception as e:
            print(f"flex: {type(e).__name__}: {str(e).splitlines()[0][:90]}",
                  flush=True)
            break
        at = row("flex", f"window {w}" if w else "causal", B, T, H, D, f, x,
                 T * w - w * (w - 1) / 2 if w else None)
        if at and not w and found.get(("flin", T)):
            b = found["flin", T]
            print(f"           flin's rate of flex's: forward "
                  f"{at[0] / b[0]:.2f}, backward {at[1] / b[1]:.2f}",
                  flush=True)
    print(f"{time.monotonic() - BEGUN:.0f} s", flush=True)


if __name__ == "__main__":
    main()
