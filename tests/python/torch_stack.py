"""Layers and stacks that keep their inputs alone between forward and backward:
the same bits, fewer bytes."""
import gc
import importlib.util
import sys

from harness import check, end, flin, refused, same

if not importlib.util.find_spec("torch"):
    print("skip no PyTorch for", sys.executable)
    sys.exit()
import torch                                        # noqa: E402
import flin.nn                                      # noqa: E402

torch.set_num_threads(1)
D, N, LAYERS = 16, 48, 6


class Block(torch.nn.Module):
    """A mixer and a gate, as models have them."""

    def __init__(self, checkpoint=False):
        super().__init__()
        self.mix = flin.nn.Layer("gla", d=D, heads=2, k=8, v=8, r=4,
                                 checkpoint=checkpoint)
        self.norm = flin.nn.RMSNorm(D)
        self.into = torch.nn.Linear(D, 2 * N, bias=False)
        self.out = torch.nn.Linear(N, D, bias=False)
        self.gate = flin.nn.SwiGLU(inplace=True)

    def forward(self, x, cu_seqlens=None):
        x = x + self.mix(x, cu_seqlens=cu_seqlens)[0]
        return x + self.out(self.gate(*self.into(self.norm(x)).chunk(2, -1)))


def stack(every, own=False):
    torch.manual_seed(4)
    return flin.nn.Stack(*(Block(own) for _ in range(LAYERS)),
                         checkpoint=every)


def retained(f, times=12):
    """What f gives, and the bytes of tensors that it has left: the least of a
    few counts, as the profiler misses a release now and then."""
    gc.collect()                # what others have left goes now, not then
    gc.disable()
    with torch.autograd.profiler.profile(profile_memory=True) as p:
        y = f()
    gc.enable()
    left = sum(e.self_cpu_memory_usage for e in p.function_events)
    return y, left if times == 1 else min(left, retained(f, times - 1)[1])


def train(model, x, **named):
    x = x.clone().requires_grad_()
    y, left = retained(lambda: model(x, **named))
    torch.cos(y).sum().backward()
    return y.detach(), left, [x.grad] + [p.grad for p in model.parameters()]


x = torch.randn(1, 40, D)
ends = torch.tensor([0, 13, 40])
y, all_kept, want = train(stack(0), x, cu_seqlens=ends)
kept = {0: all_kept}
for every in 1, 2, 4, LAYERS:
    own, kept[every], found = train(stack(every), x, cu_seqlens=ends)
    same(f"{every} at a time: y", own, y)
    for i, (a, b) in enumerate(zip(found, want)):
        same(f"{every} at a time: gradient {i}", a, b)
    groups = -(-LAYERS // every)    # an input or y, and PyTorch's random state
    each = x.numel() * 4 + torch.get_rng_state().numel()
    check(f"{every} at a time: what stays is the groups' inputs",
          kept[every] <= groups * each, kept)
    check(f"{every} at a time: else more stays",
          kept[every] < all_kept / 4, kept)
own, _, found = train(stack(0, own=True), x, cu_seqlens=ends)
for i, (a, b) in enumerate(zip(found, want)):
    same(f"layers of their own: gradient {i}", a, b)
with torch.no_grad():
    same("nothing to keep", stack(2)(x, cu_seqlens=ends), y)
refused("half a module", ValueError, "checkpoint = 0.5", flin.nn.Stack,
        checkpoint=0.5)
refused("of what is loaded", ValueError, "flin.load(..., plan=..., checkpoint",
        flin.nn.Layer, flin.load("return require 'flin'.layers.gla"), d=8,
        heads=1, k=8, v=8, r=4, checkpoint=True)
refused("of a variant", ValueError, "it is no layer",
        flin.load, "linear", checkpoint=True)
end()
