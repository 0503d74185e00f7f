"""AdamW behind a clip of all gradients' norm, as train_24.py trains its sides.

What a step leaves is gradients, by flin, of one sum: that by a moment is the
next moment, that by a weight the next weight. Each is written over what it is
of; all are computed in float32, whatever they are kept in, and of gradients
nothing is written."""
import contextlib
import itertools

import flin
import torch

FIRST, SECOND, DECAY, EPS = 0.9, 0.95, 0.1, 1e-8
UPDATE = f"""local flin = require "flin"
local square = flin.square
return flin.layer {{
  name = "adamw",
  input = {{ g = "t n", m = "t n", v = "t n", p = "t n" }},
  weight = {{ clip = "", rate = "", stays = "", root = "" }},
  forward = function (x, w)
    local g = w.clip * x.g
    local m = {FIRST} * x.m + (1 - {FIRST}) * g
    local v = {SECOND} * x.v + (1 - {SECOND}) * square(g)
    local step = flin.detach(w.rate * m / (w.root * flin.sqrt(v) + {EPS}))
    return flin.sum({FIRST} * square(x.m) / 2 + (1 - {FIRST}) * g * x.m
      + {SECOND} * square(x.v) / 2 + (1 - {SECOND}) * square(g) * x.v
      + w.stays * square(x.p) / 2 - step * x.p, "n")
  end,
}}"""
ROW = 1024                  # weights, that the programs go along
SMALL = 1 << 16             # such weights are one, whatever they are of
STREAMS = 4                 # programs of small ones run beside one another

# PyTorch 2.0 on.
storage_of = getattr(torch.Tensor, "untyped_storage", torch.Tensor.storage)


def lie_on(tensors, apart):
    """Whether each begins so many elements behind the one before, in the same
    memory."""
    return all(
        storage_of(a).data_ptr() == storage_of(b).data_ptr()
        and b.data_ptr() - a.data_ptr() == n * a.element_size()
        for a, b, n in zip(tensors, tensors[1:], apart))


def in_a_row(tensors):
    """Tensors without gaps as one of one axis, in the order in which all lies;
    None: they do not lie one behind another."""
    sizes = [t.numel() for t in tensors]
    if not lie_on(tensors, sizes):
        return None
    return tensors[0].as_strided((sum(sizes),), (1,))


def as_rows(flat):
    """Of one axis as [1, T, n], the most of it and the rest."""
    whole = len(flat) // ROW * ROW
    return [t for t in (flat[:whole].view(1, -1, ROW),
                        flat[whole:].view(1, 1, -1)) if t.numel()]


def neighbours(parameters):
    """Lists of what lies one behind another."""
    found = []
    for p in sorted(parameters, key=torch.Tensor.data_ptr):
        last = found[-1] if found else None
        if last and in_a_row([*last, p]) is not None:
            last.append(p)
        else:
            found.append([p])
    return found


def lay_as_one(parameters):
    """Moves them one behind another, each in its own order."""
    all_ = torch.cat([in_a_row([p.data]) for p in parameters])
    for p, part in zip(parameters, all_.split([p.numel()
                                               for p in parameters])):
        p.data = part.as_strided(p.shape, p.stride())


def norm_of(tensors):
    """Of all numbers of all of them."""
    if tensors[0].is_cuda and hasattr(torch, "_foreach_norm"):
        each = torch._foreach_norm(tensors, 2, torch.float32)
    else:
        each = [torch.linalg.vector_norm(t, dtype=torch.float32)
                for t in tensors]
    return torch.linalg.vector_norm(torch.stack(list(each)))


@contextlib.contextmanager
def beside(streams):
    """What is put on these waits for what there is; what follows, for it."""
    for s in streams:
        s.wait_stream(torch.cuda.current_stream())
    yield
    for s in streams:
        torch.cuda.current_stream().wait_stream(s)


class AdamW:
    """Of parameters without gaps; the small ones it moves into one place."""

    def __init__(self, parameters):
        self.parameters = list(parameters)
        runs = neighbours(self.parameters)
        small = [p for run in runs for p in run
                 if sum(p.numel() for p in run) < SMALL]
        if small:
            lay_as_one(small)
            runs = [run for run in runs if run[0] not in set(small)] + [small]
        self.small, self.taken = small, 0
        self.kept = []
        for run in runs:
            p = in_a_row([p.data for p in run])
            self.kept.append((run, p, torch.zeros_like(p),
                              torch.zeros_like(p)))
        self.program = flin.load(UPDATE)
        self.numbers = torch.empty(3, device=self.parameters[0].device)
        self.ones = torch.ones(1, max(
            rows.shape[1] for run, p, *_ in self.kept
            for flat in [p, *(in_a_row([p.data]) for p in run)]
            for rows in as_rows(flat)), device=self.numbers.device)
        self.streams = [torch.cuda.Stream() for _ in range(STREAMS)] \
            if self.numbers.is_cuda else []

    def zero_grad(self):
        for p in self.parameters:
            p.grad = None

    def begin(self, rate):
        """What the next step does; outside of what a graph records."""
        self.taken += 1
        self.numbers.copy_(torch.tensor([
            rate / (1 - FIRST ** self.taken), 1 - DECAY * rate,
            (1 - SECOND ** self.taken) ** -0.5]))

    def gradients(self, run):
        """As few as they lie in, of one axis each."""
        found = [p.grad if p.grad.stride() == p.stride()
                 else torch.empty_like(p).copy_(p.grad) for p in run]
        one = in_a_row(found)
        each = [one] if one is not None else [in_a_row([g]) for g in found]
        return [torch.cat(each)] if run is self.small else each

    @torch.no_grad()
    def step(self):
        """The gradients' norm, 1 of which at most counts. One that did not
        come is 0."""
        for p in self.parameters:
            if p.grad is None:
                p.grad = torch.zeros_like(p)
        norm = norm_of([p.grad for p in self.parameters])
        clip = norm.clamp(min=1).reciprocal()
        turns = itertools.cycle(self.streams or [None])
        with beside(self.streams):
            for (run, *kept), stream in zip(self.kept, turns):
                with torch.cuda.stream(stream):
                    self.update(clip, self.gradients(run), *kept)
        return norm

    def update(self, clip, gradients, *kept):
        at = 0
        for g in gradients:
            rows = map(as_rows, [g] + [t[at:at + len(g)] for t in kept])
            at += len(g)
            for some in zip(*rows):
                self.write(clip, *some)

    def write(self, clip, g, p, m, v):
        rate, stays, root = self.numbers
        do = self.ones[:, :g.shape[1]]
        self.program.backward(
            g=g, m=m, v=v, p=p, clip=clip, rate=rate, stays=stays, root=root,
            do=do, wanted=("m", "v", "p"), inplace=("m", "v", "p"))
