"""Trains the runs of one model side by side, each at its own rate: a step is
the same operations for all, and a CUDA graph where there is a GPU, on which
several models take turns."""
import contextlib
import itertools
import math

import torch
import torch.nn.functional as F

IGNORED = -100                  # a token that nothing is asked of
BLOCK = 50                      # steps whose data are drawn at once


class AdamW:
    """torch.optim.AdamW with a rate for each run; gradients are clipped by
    each run's own norm. Rates rise for a tenth of the steps, then fall."""

    def __init__(self, model, rates, steps, decay=0.01, betas=(0.9, 0.95)):
        self.parameters = [p for p in model.parameters()]
        self.decay, self.betas, self.steps = decay, betas, steps
        self.views = [p.detach().view(model.runs, -1) for p in self.parameters]
        self.sizes = [v.shape[1] for v in self.views]
        self.flat = torch.cat(self.views, 1)
        self.mean = torch.zeros_like(self.flat)
        self.square = torch.zeros_like(self.flat)
        self.rates = self.flat.new_tensor(rates)[:, None]

    def step(self, loss, at):
        """at: how many steps were before, as a tensor."""
        g = torch.autograd.grad(loss, self.parameters)
        g = torch.cat([x.reshape(len(self.flat), -1) for x in g], 1)
        g = g * (1 / (g.norm(dim=1, keepdim=True) + 1e-6)).clamp(max=1)
        part = at / self.steps
        rate = self.rates * torch.where(
            part < 0.1, part * 10 + 1 / self.steps,
            0.5 + 0.5 * torch.cos(math.pi * (part - 0.1) / 0.9))
        a, b = self.betas
        self.mean.lerp_(g, 1 - a)
        self.square.lerp_(g * g, 1 - b)
        mean = self.mean / (1 - a ** (at + 1))
        square = self.square / (1 - b ** (at + 1))
        self.flat.sub_(rate * (mean / (square.sqrt() + 1e-8)
                               + self.decay * self.flat))
        for view, own in zip(self.views, self.flat.split(self.sizes, 1)):
            view.copy_(own)


def losses(model, x, label):
    """Of each run: cross-entropy, or of numbers the mean square. Sequences
    count alike, however much is asked of them."""
    y = model(x)
    if label.is_floating_point():
        return (y - label.mT).square().mean((0, 1, 3))
    each = F.cross_entropy(y.flatten(0, 2), label.flatten(), reduction="none",
                           ignore_index=IGNORED).view(label.shape)
    return (each.sum(1) / (label != IGNORED).sum(1)).mean(0)


def train(model, draw, rates, steps, device):
    """draw(n): what n steps are given and should say, [n, B, T, ..., runs]
    each. Yields now and then; returns what is lost at each step by each run,
    [steps, runs]."""
    model.to(device)
    optimiser = AdamW(model, rates, steps)
    at = torch.zeros((), device=device)
    found = torch.zeros(steps, model.runs, device=device)
    x, label = draw(BLOCK)

    def step():
        i = at.long()
        place = (i % BLOCK).view(1)
        loss = losses(model, x.index_select(0, place)[0],
                      label.index_select(0, place)[0])
        found.index_copy_(0, i.view(1), loss.detach()[None])
        optimiser.step(loss.sum(), at)
        at.add_(1)

    again = step
    if device.startswith("cuda"):
        for _ in range(2):          # compiles, and changes nothing
            torch.autograd.grad(losses(model, x[0], label[0]).sum(),
                                optimiser.parameters)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        again = graph.replay
    for i in range(steps):
        if i and i % BLOCK == 0:
            yield
            for old, new in zip((x, label), draw(BLOCK)):
                old.copy_(new)
        again()
    return found


def take_turns(trainings, many, device):
    """Runs generators, so many at a time, on a stream each. Yields what each
    returns, or the exception that ended it, with its number."""
    waiting, active = enumerate(trainings), []
    on_gpu = device.startswith("cuda")
    while True:
        for i, training in itertools.islice(waiting, many - len(active)):
            active.append((i, training, torch.cuda.Stream() if on_gpu
                           else None))
        if not active:
            return
        for each in list(active):
            i, training, stream = each
            try:
                with torch.cuda.stream(stream) if on_gpu else \
                        contextlib.nullcontext():
                    next(training)
                continue
            except StopIteration as end:
                found = end.value
            except Exception as wrong:
                found = wrong
            active.remove(each)
            if on_gpu:
                torch.cuda.current_stream().wait_stream(stream)
            yield i, found
