"""Cross-entropy of bfloat16 logits on a GPU, forward and backward: flin (apart,
and with the gradient written over the logits) beside PyTorch, eager and
compiled, and Liger where it is installed.

    python3 tests/bench/rows.py [tokens=8192 n=32000,128256 d=0 compile=1]

Milliseconds of calls, and as a CUDA graph; the memory that it takes above its
arguments; what of the memory's bandwidth that is if each logit is read twice
and its gradient written once; how far the gradient is from float64 on the first
tokens. With d, the head's product, too: hidden states of width d to the loss,
where flin runs in tiles."""
import sys

import torch
import torch.nn.functional as F

from timing import median, recorded

import tree                                         # noqa: F401
import flin.nn

SIZES = {"tokens": "8192", "n": "32000,128256", "d": "0", "compile": "1"}
CHECKED = 64                    # tokens that are compared with float64


def eager(z, label):
    return F.cross_entropy(z, label)


def eager_wide(z, label):
    return F.cross_entropy(z.float(), label)


def losses(compiled):
    apart, over = flin.nn.CrossEntropy(), flin.nn.CrossEntropy(inplace=True)
    found = [("flin", apart), ("flin, in place", over),
             ("torch", eager), ("torch, float32", eager_wide)]
    if compiled:
        found.append(("torch.compile", torch.compile(eager_wide)))
    try:
        from liger_kernel.transformers import LigerCrossEntropyLoss
        found.append(("liger", LigerCrossEntropyLoss()))
    except ImportError:
        print("  liger_kernel is not installed")
    return found


def heads(compiled):
    found = [("torch, float32", lambda x, w, label: eager_wide(x @ w, label))]
    if hasattr(flin.nn, "LinearCrossEntropy"):
        found.insert(0, ("flin, tiles", flin.nn.LinearCrossEntropy()))
    entropy = flin.nn.CrossEntropy(inplace=True)
    found.append(("torch, flin in place",
                  lambda x, w, label: entropy(x @ w, label)))
    if compiled:
        found.append(("torch.compile", torch.compile(
            lambda x, w, label: eager_wide(x @ w, label))))
    return found


def away(a, b):
    return float((a.double() - b).norm() / b.norm())


def true_gradient(z, label, tokens):
    """Of the mean over all tokens, of the first ones."""
    z = z[:CHECKED].double().requires_grad_()
    loss = F.cross_entropy(z, label[:CHECKED], reduction="sum") / tokens
    return torch.autograd.grad(loss, z)[0]


def memory(f):
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    f()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def measure(name, f, fresh, floor, true):
    """fresh: makes the arguments anew; floor: bytes."""
    try:
        args = fresh()
        first = torch.autograd.grad(f(*args), args[0])[0][:CHECKED]
        error = "" if true is None else f"{away(first, true):9.1e}"
        del first
        args = fresh()
        peak = memory(lambda: torch.autograd.grad(f(*args), args[0]))
        wanted = args[:-1]
        called = median(lambda: torch.autograd.grad(f(*args), wanted), 9)
        ms = recorded(lambda: torch.autograd.grad(f(*args), wanted))
    except Exception as e:
        print(f"  {name:22}  {type(e).__name__}: {str(e)[:120]}")
        return
    print(f"  {name:22} {called:9.3f} {ms:9.3f} ms {peak:9.0f} MB "
          f"{floor / ms / 1e9:7.2f} TB/s {error}", flush=True)


def logits(tokens, n, compiled):
    torch.manual_seed(0)
    label = torch.randint(n, (tokens,), device="cuda")
    kept = 2 * torch.randn(tokens, n, device="cuda", dtype=torch.bfloat16)
    true = true_gradient(kept, label, tokens)
    print(f"{tokens} tokens of {n}, bfloat16: floor of bytes "
          f"{3 * 2 * tokens * n / 1e9:.2f} GB")
    for name, f in losses(compiled):
        measure(name, f, lambda: (kept.clone().requires_grad_(), label),
                3 * 2 * tokens * n, true)


def products(tokens, n, d, compiled):
    torch.manual_seed(0)
    label = torch.randint(n, (tokens,), device="cuda")
    x = torch.randn(tokens, d, device="cuda", dtype=torch.bfloat16)
    w = d**-0.5 * torch.randn(d, n, device="cuda", dtype=torch.bfloat16)
    print(f"{tokens} tokens of {d} to {n}, bfloat16: "
          f"{6 * tokens * n * d / 1e12:.2f} TFLOP")
    for name, f in heads(compiled):
        measure(name, f, lambda: (x.clone().requires_grad_(),
                                  w.clone().requires_grad_(), label),
                3 * 2 * tokens * n, None)


def main():
    given = {**SIZES, **dict(a.split("=") for a in sys.argv[1:])}
    print(torch.cuda.get_device_name(), torch.__version__)
    for n in map(int, given["n"].split(",")):
        logits(int(given["tokens"]), n, int(given["compile"]))
        if int(given["d"]):
            products(int(given["tokens"]), n, int(given["d"]),
                     int(given["compile"]))


if __name__ == "__main__":
    main()
