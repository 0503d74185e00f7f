"""What fused operations of training promise, as ten commands on the model of
examples/train_24.py: each prints its figure beside its limit, and fails where
the limit is passed.

    python3 tests/contracts/fused.py [NAME...] [--spoil] [sizes as train_24.py]

  1 entropy        the loss within 1e-5 of the separate one over 50 steps
  2 norm           what backward makes again of a norm: the same bits, in all
                   layers
  3 swiglu         gradients of gate and up within 1e-5
  4 rotate         all heads at once: the bits of each head alone
  5 attention      within 1e-3 in float32
  6 memory         at least 300 MB of what is kept for the way back saved
                   (at the full sizes; else as much of theirs)
  7 entropy_peak   the loss and its gradient take less than B S V 4 bytes
  8 checkpoint     gradients of checkpointed layers, and of SwiGLU made again:
                   the same bits
  9 gradients      attention's way back reaches all parameters, the loss stays
                   within 1 % of the separate one
 10 stability      100 steps: losses finite, gradients' norms below 100

--spoil breaks, in each, what it watches over, and succeeds where every one
fails. --bisect trains with flin's operations turned on one after another, says
which one brings the instability, and fails where one does; --spoil OPERATION
there breaks that one (of norm, rotate, attention, delta, swiglu, products,
branch, entropy)."""
import ctypes
import functools
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../../examples"))
try:
    import torch
except ImportError:
    print("skip no PyTorch for", sys.executable)
    sys.exit()
import train_24                                     # noqa: E402
import torch.nn.functional as F                     # noqa: E402
from train_24 import Flin, Plain, operations        # noqa: E402

SAVED = 300e6 / (24 * 4 * 1024 * 1024)  # bytes of a layer, token and channel
CONTRACTS = {}


def contract(limit, least=False):
    """A function of the options and whether to spoil, that gives a figure:
    at most `limit`, or at least that."""
    def add(f):
        CONTRACTS[f.__name__] = f, limit, least
        return f
    return add


def apart(x, y):
    """The largest difference, NaN where one is."""
    return (x.double() - y.double()).abs().max().item()


def draw(a, *shape, dtype=torch.float32, seed=1):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=g).to(a.device, dtype)


class Worse(torch.autograd.Function):
    """What has a wrong gradient."""
    @staticmethod
    def forward(ctx, x, much):
        ctx.much = much
        return x.view_as(x)

    @staticmethod
    def backward(ctx, d):
        return d * (1 + ctx.much), None


def spoiled(by, name, much):
    """The operations, one of which has a gradient 1 + much times what it is."""
    right = getattr(by, name)

    def wrong(*x):
        y = right(*x)
        if isinstance(y, torch.Tensor):
            return Worse.apply(y, much)
        return [Worse.apply(t, much) for t in y]
    setattr(by, name, wrong)
    return by


# ---- the ten ----


@contract(1e-5)
def entropy(a, spoil):
    by = operations("flin")
    model = train_24.made(a)
    run = train_24.Training(a, model, functools.partial(model, by=by))
    rows = train_24.batches(a, a.words)
    worst = 0

    def both(x, head, label):
        nonlocal worst
        with torch.no_grad():
            z = x @ head.t()
            label_of = (label + 1) % z.shape[1] if spoil else label
            worst = max(worst, apart(
                train_24.flin.nn.CrossEntropy()(z, label_of),
                F.cross_entropy(z.float(), label)))
        return Flin.entropy(x, head, label)
    by.entropy = both
    for _ in range(min(a.steps, 50)):
        run.step(next(rows))
    return worst


@contract(0)
def norm(a, spoil):
    """A gradient of one token's row of ones makes the weight's gradient that
    token's normed row, which the way back has made again; where the norm is of
    a branch, the way back gives what it has made."""
    differ = 0
    for layer in range(a.layers):
        x = draw(a, a.batch, a.length, a.width, dtype=a.dtype, seed=layer)
        x = (3 * x).requires_grad_()
        w = torch.ones(a.width, device=a.device, dtype=a.dtype,
                       requires_grad=True)
        y = Flin.norm(x, w)
        dy = torch.zeros_like(y)
        token = layer % a.batch, (7919 * layer + 5) % a.length
        dy[token] = 1
        if spoil and layer == a.layers - 1:
            x.data[token] *= 1.01
        again, = torch.autograd.grad(y, w, dy)
        differ += int((again != y.detach()[token]).sum())
        made = Flin.loaded("branch").backward(
            x=x.detach(), w=w.detach(), dh=dy, past=dy, do=Flin.ones(x),
            wanted=("x", "w", "dh"))
        differ += int((made["dh"] != y.detach()).sum())
    return differ


@contract(1e-5)
def swiglu(a, spoil):
    gate, up, dy = (draw(a, a.batch, a.length, a.hidden, seed=s)
                    for s in range(3))
    found = []
    for by in operations("flin"), Plain:
        x = [t.clone().requires_grad_() for t in (gate, up)]
        d = torch.autograd.grad(by.swiglu(x[0] * 1, x[1] * 1), x, dy)
        found.append(d)
    if spoil:
        found[0][0][0, 0, 0] += 1e-3
    return max(apart(x, y) for x, y in zip(*found))


@contract(0)
def rotate(a, spoil):
    angle = train_24.made(a).angle
    differ, size = 0, a.width // a.heads
    for n in a.heads, a.key_heads:
        x = draw(a, a.batch, a.length, n, size, dtype=a.dtype, seed=n)
        dy = draw(a, a.batch, a.length, n, size, dtype=a.dtype, seed=n + 1)
        x.requires_grad_()
        y = Flin.rotate(x, angle)
        d, = torch.autograd.grad(y, x, dy)
        for h in range(n):
            one = x.detach()[:, :, h:h + 1].contiguous().requires_grad_()
            y1 = Flin.rotate(one, angle * (1.001 if spoil else 1))
            d1, = torch.autograd.grad(y1, one, dy[:, :, h:h + 1].contiguous())
            differ += int((y1[:, :, 0] != y[:, :, h]).sum())
            differ += int((d1[:, :, 0] != d[:, :, h]).sum())
    return differ


@contract(1e-3)
def attention(a, spoil):
    size = a.width // a.heads
    q, k, v = (draw(a, a.batch, a.length, n, size, seed=s) for s, n in
               enumerate((a.heads, a.key_heads, a.key_heads)))
    with torch.no_grad():
        y = Flin.attention(q, k.roll(1, 1) if spoil else k, v)
        return apart(y, Plain.attention(q.double(), k.double(), v.double())
                     if a.device == "cpu" else separate(q, k, v))


def separate(q, k, v):
    """Batch entry by batch entry, scores and all, in float64."""
    out = []
    for b in range(q.shape[0]):
        x = [t[b].double().transpose(0, 1) for t in (q, k, v)]
        n = x[0].shape[0] // x[1].shape[0]
        x[1:] = (t.repeat_interleave(n, 0) for t in x[1:])
        s = x[0] @ x[1].mT * q.shape[-1] ** -0.5
        late = torch.ones_like(s[0], dtype=torch.bool).triu(1)
        out.append((s.masked_fill(late, -torch.inf).softmax(-1)
                    @ x[2]).transpose(0, 1))
    return torch.stack(out)


@contract(1, least=True)
def memory(a, spoil):
    """As many times what is to be saved."""
    kept = []
    for side in "torch" if spoil else "flin", "torch":
        model = train_24.made(a)
        x, label = some_rows(a)
        seen = {}

        def keep(t):
            if t.grad_fn is not None or not t.requires_grad:
                s = t.untyped_storage() if hasattr(t, "untyped_storage") \
                    else t.storage()
                seen[s.data_ptr()] = s.nbytes() if hasattr(s, "nbytes") \
                    else len(s) * t.element_size()
            return t
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
            loss = model(x, label, operations(side))
        kept.append(sum(seen.values()))
        del loss, model
    wanted = SAVED * a.layers * a.batch * a.length * a.width
    print(f"      kept for the way back: {kept[0] / 2**20:.1f} MB of "
          f"{kept[1] / 2**20:.1f} MB")
    return (kept[1] - kept[0]) / wanted


def some_rows(a):
    rows = next(train_24.batches(a, a.words))
    return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()


def peak_of(a, f):
    """Bytes that f takes above what there is."""
    if a.device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        f()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before

    def status(name):
        with open("/proc/self/status", encoding="utf-8") as lines:
            return next(1024 * int(line.split()[1]) for line in lines
                        if line.startswith(name))
    ctypes.CDLL(None).malloc_trim(0)    # what is free is not kept
    with open("/proc/self/clear_refs", "w", encoding="utf-8") as reset:
        reset.write("5")        # the highest so far is forgotten
    before = status("VmRSS")
    f()
    return status("VmHWM") - before


@contract(1)
def entropy_peak(a, spoil):
    """Of B S V 4 bytes, at least 16 MB of them: what the system says of a
    process is some 100 KB off for every processor."""
    n = max(a.batch * a.length, 4096)
    label = torch.arange(n, device=a.device) % a.vocabulary

    def run(z):
        z.requires_grad_()
        loss = F.cross_entropy(z.float(), label) if spoil else \
            train_24.flin.nn.CrossEntropy(inplace=True)(z, label)
        return torch.autograd.grad(loss, z)
    # what is made once, kernels and the library's tables, is not of the loss
    run(draw(a, n, a.vocabulary, dtype=a.dtype))
    z = draw(a, n, a.vocabulary, dtype=a.dtype)
    return peak_of(a, lambda: run(z)) / (4 * n * a.vocabulary)


@contract(0)
def checkpoint(a, spoil):
    """Of whole layers, and of SwiGLU alone."""
    from torch.utils.checkpoint import checkpoint as again
    x, label = some_rows(a)
    found = []
    for how in "plain", "layers", "swiglu":
        model, by = train_24.made(a), operations("flin")
        for block in model.blocks:
            block.anew = how == "swiglu"
            if how == "layers":
                block.forward = functools.partial(
                    again, block.forward, use_reentrant=False)
        if spoil and how == "layers":
            spoiled(by, "swiglu", 1e-3)
        model(x, label, by).backward()
        found.append([p.grad for p in model.parameters()])
    plain, *others = found
    return sum(int((x != y).sum()) for other in others
               for x, y in zip(plain, other))


@contract(0.01)
def gradients(a, spoil):
    """How far losses are apart, infinite where a parameter has no gradient
    or only zeros."""
    losses = []
    for fused in ("attention", "delta"), ():
        by = operations("flin", fused)
        if spoil and fused:
            attend = by.attention
            by.attention = lambda q, k, v: attend(q.detach(), k, v)
        model = train_24.made(a)
        run = train_24.Training(a, model, functools.partial(model, by=by))
        rows = train_24.batches(a, a.words)
        lost = []
        for i in range(min(a.steps, 20)):
            lost.append(run.step(next(rows))[0].item())
            for name, p in model.named_parameters():
                if p.grad is None or not p.grad.isfinite().all() \
                        or not p.grad.any():
                    print(f"      {name} has no gradient")
                    return float("inf")
        losses.append(lost)
    return max(abs(x - y) / abs(y) for x, y in zip(*losses))


@contract(100)
def stability(a, spoil):
    """The largest norm of gradients, infinite where a loss is not finite."""
    by = operations("flin")
    return trained(a, spoiled(by, "norm", 30) if spoil else by)


def trained(a, by):
    model = train_24.made(a)
    run = train_24.Training(a, model, functools.partial(model, by=by))
    rows, most = train_24.batches(a, a.words), 0
    for _ in range(a.steps):
        loss, size = run.step(next(rows))
        if not (loss.isfinite() and size.isfinite()):
            return float("inf")
        most = max(most, size.item())
    return most


# ---- which one it is ----


def bisect(a, wrong):
    """The norms of gradients with none of the operations, then with more and
    more of them: whether all stay below stability's limit."""
    limit = CONTRACTS["stability"][1]
    names = [n for n in train_24.FUSIONS if n in used(a)]
    for n in range(len(names) + 1):
        by = operations("flin", names[:n])
        if wrong in names[:n]:
            spoiled(by, wrong, 3000)
        most = trained(a, by)
        last = names[n - 1] if n else "none"
        print(f"{'ok  ' if most <= limit else 'FAIL'}  + {last:13} "
              f"{most:10.3g}  (at most {limit:g})", flush=True)
        if not most <= limit:
            print(f"the instability comes with {last}" if n
                  else "the instability is not of these operations")
            return False
    return True


def used(a):
    """What the options' mixer has."""
    rules = train_24.MIXERS[a.mixer]
    return [n for n in train_24.FUSIONS
            if (n not in ("rotate", "attention") or "softmax" in rules)
            and (n != "delta" or "gated_deltanet" in rules)]


# ---- the command ----


def main():
    words, names, flags = [], [], set()
    for word in sys.argv[1:]:
        if word in (train_24.FUSIONS if "--bisect" in sys.argv else CONTRACTS):
            names.append(word)
        elif word in ("--spoil", "--bisect"):
            flags.add(word)
        else:
            words.append(word)
    spoil = "--spoil" in flags
    a = train_24.options(words)
    a.words = train_24.tokens_of(train_24.words_of(a.text), a.vocabulary)
    if "--bisect" in flags:
        sys.exit(not bisect(a, names[0] if spoil else None))
    passed = failed = 0
    for name in names or CONTRACTS:
        f, limit, least = CONTRACTS[name]
        figure = f(a, spoil)
        held = figure >= limit if least else figure <= limit
        ok = held != spoil
        passed, failed = passed + ok, failed + (not ok)
        print(f"{'ok  ' if ok else 'FAIL'}  {name:13} {figure:10.3g}  "
              f"({'at least' if least else 'at most'} {limit:g})"
              f"{' spoiled' if spoil else ''}", flush=True)
    print(f"{passed} passed, {failed} failed")
    sys.exit(failed != 0)


if __name__ == "__main__":
    main()
