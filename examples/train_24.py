"""A language model of 24 layers, trained on a text: RMS norms, rotations, the
mixing rule, SwiGLU, the loss and products of short sums are flin's, the other
products PyTorch's. Beside it, the same model, with the same weights and
batches, in plain PyTorch (torch.compile, scaled_dot_product_attention) and with
flash-linear-attention's modules.

    python3 examples/train_24.py [--mixer softmax|gated_deltanet|hybrid]
        [--beside torch,fla] [--graph] [--steps 100] [--svg FILE] ...

On a GPU the sizes are 24 layers of width 1024, 16 query and 4 key heads of 64,
SwiGLU of 4096, 32,000 tokens, 4 sequences of 1024; on a CPU small ones. Says
milliseconds a step, tokens a second, peak memory and losses of each side, and
draws the losses. Sides beside the first run in processes of their own, one
after another, and end after --limit seconds; Triton's kernels and what was
chosen of them are kept (TRITON_CACHE_DIR, FLIN_TUNED). --graph records a step
as a CUDA graph, on all sides alike; --kernels N says what takes a step's time,
--memory N what its peak of memory holds.
The text is the checkout's own pages and sources (or --text FILE); a token is
one of its most frequent words, or a byte."""
import argparse
import functools
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
import types

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../lang/python"))
try:
    import torch
except ImportError:
    sys.exit("this example wants PyTorch (Debian: python3-torch)")
sys.path.insert(0, HERE)
import flin                                         # noqa: E402
import flin.nn                                      # noqa: E402
import torch.nn.functional as F                     # noqa: E402
from train_24_adamw import AdamW                    # noqa: E402
from train_24_costs import kernels_of, memory_of    # noqa: E402
from train_24_flin import Entropy, Flin, Wide, lay_beside       # noqa: E402
from train_24_text import tokens_of, words_of       # noqa: E402
from torch import nn                                # noqa: E402

FULL = dict(layers=24, width=1024, heads=16, key_heads=4, hidden=4096,
            vocabulary=32000, batch=4, length=1024, steps=100, rate=3e-4)
SMALL = dict(layers=4, width=64, heads=4, key_heads=1, hidden=256,
             vocabulary=1000, batch=2, length=64, steps=20, rate=3e-3)
MIXERS = {"softmax": ("softmax",), "gated_deltanet": ("gated_deltanet",),
          "hybrid": ("gated_deltanet",) * 3 + ("softmax",)}
SIDES = "flin", "torch", "fla"
EPS = 1e-5
BASE = 10000                    # of the rotations' angles
WARM = 3                        # steps before a graph is recorded


# ---- the operations, by whoever computes them ----


class Plain:
    """PyTorch's own, as one would write them."""
    name = "torch"

    @staticmethod
    def norm(x, w):
        wide = x.float()
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + EPS)
        return (wide * scale).to(x.dtype) * w

    @staticmethod
    def rotate(x, angle):
        """Pairs of neighbouring channels of x [B, T, H, K] by angle [T, K/2],
        each by its own."""
        c, s = angle.cos()[:, None], angle.sin()[:, None]
        a, b = x.float().unflatten(-1, (-1, 2)).unbind(-1)
        return torch.stack((a * c - b * s, a * s + b * c), -1) \
            .flatten(-2).to(x.dtype)

    @staticmethod
    def attention(q, k, v):
        """Causal; q [B, T, H, K], k and v with as many heads or fewer."""
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        group = q.shape[1] // k.shape[1]
        k, v = (t.repeat_interleave(group, 1) for t in (k, v))
        if hasattr(F, "scaled_dot_product_attention"):
            return F.scaled_dot_product_attention(
                q, k, v, is_causal=True).transpose(1, 2)
        s = q @ k.mT * q.shape[-1] ** -0.5
        later = torch.ones_like(s[0, 0], dtype=torch.bool).triu(1)
        return (s.masked_fill(later, -math.inf).softmax(-1) @ v) \
            .transpose(1, 2)

    @staticmethod
    def mixed(x, w):
        """A layer of gated DeltaNet; w: weights as flin.layers names them."""
        q, k, v = (F.silu(shifted(project(x, w["W" + n]), w["c" + n]))
                   for n in "qkv")
        g = -w["A_log"].float().exp() * F.softplus(
            (x @ w["Wa"]).float() + w["dt"].float())
        beta = torch.sigmoid((x @ w["Wb"]).float())
        q, k = (t.float() * torch.rsqrt(t.float().square().sum(
            -1, keepdim=True) + 1e-6) for t in (q, k))
        y = delta_chunks((q * q.shape[-1] ** -0.5).to(x.dtype),
                         k.to(x.dtype), v, g, beta)
        y = Plain.norm(y, w["norm"]) * F.silu(project(x, w["Wg"]))
        return y.flatten(2) @ w["Wo"].flatten(0, 1)

    @staticmethod
    def delta(norm, x, w, weights):
        """x and a layer of gated DeltaNet of norm(x, w)."""
        return x + Plain.mixed(norm(x, w), weights)

    @staticmethod
    def swiglu(gate, up):
        return F.silu(gate) * up

    @staticmethod
    def products(past, f, x, weight):
        """past + f(*x) times the weight [out, in]; f None: x."""
        return past + F.linear(f(*x) if f else x, weight)

    @staticmethod
    def branch(norm, x, w, weights):
        """x, which goes on, and norm(x, w) times each of the weights."""
        x = summed(x)
        h = norm(x, w)
        return x, *(F.linear(h, w) for w in weights)

    @staticmethod
    def entropy(x, head, label):
        """The mean cross-entropy of x [N, d] times head [n, d]."""
        return F.cross_entropy((x @ head.t()).float(), label)


def summed(x):
    """x, or the sum of two that are still to be added."""
    return x[0] + x[1] if isinstance(x, tuple) else x


def project(x, w):
    """x [B, T, d] times w [d, h, k]."""
    return (x @ w.flatten(1)).unflatten(-1, w.shape[1:])


def shifted(x, taps):
    """A causal convolution: x [B, T, h, k], taps [h, k, w], whose last one is
    of the token itself."""
    n = taps.shape[-1]
    past = F.pad(x, (0, 0, 0, 0, n - 1, 0))
    return sum(past[:, i:i + x.shape[1]] * taps[..., i] for i in range(n))


def delta_chunks(q, k, v, g, beta, chunk=64):
    """The gated delta rule, chunk by chunk: within one, what tokens correct of
    each other is a triangular system; states go from chunk to chunk."""
    T, dtype = q.shape[1], q.dtype
    C = min(chunk, T)
    late = -T % C
    q, k, v, g, beta = (F.pad(t, (0, 0) * (t.dim() - 2) + (0, late))
                        .unflatten(1, (-1, C)).transpose(2, 3)
                        for t in (q, k, v, g, beta))    # [B, N, H, C, ...]
    sums = g.cumsum(-1)
    apart = sums[..., :, None] - sums[..., None, :]
    lower = torch.ones(C, C, dtype=torch.bool, device=q.device).tril()
    decay = apart.masked_fill(~lower, -math.inf).exp()
    beta = beta[..., None]
    within = ((k * beta).to(dtype) @ k.mT).float() * decay
    solved = torch.linalg.solve_triangular(
        within.tril(-1) + torch.eye(C, device=q.device),
        torch.cat((v * beta, k * beta * sums.exp()[..., None]), -1).float(),
        upper=False, unitriangular=True)
    u, w = solved.split((v.shape[-1], k.shape[-1]), -1)
    scores = ((q @ k.mT).float() * decay).to(dtype)
    q = (q * sums.exp()[..., None]).to(dtype)
    left = (sums[..., -1:] - sums).exp()[..., None]
    k, whole = (k * left).to(dtype), sums[..., -1].exp()[..., None, None]
    w = w.to(dtype)
    S = q.new_zeros(*q.shape[:1], *q.shape[2:3], k.shape[-1], v.shape[-1],
                    dtype=torch.float32)
    out = []
    for n in range(q.shape[1]):
        new = (u[:, n] - (w[:, n] @ S.to(dtype)).float()).to(dtype)
        out.append(q[:, n] @ S.to(dtype) + scores[:, n] @ new)
        S = whole[:, n] * S + (k[:, n].mT @ new).float()
    y = torch.stack(out, 1).transpose(2, 3).flatten(1, 2)
    return y[:, :T]


class Fla:
    """flash-linear-attention's modules and functions. What their kernels are
    tuned to is found side by side, and kept. Their loss with the head's product
    in it asks the device for a number, which a graph cannot: there it is the
    loss of logits, whose gradient is written over these."""
    name = "fla"

    def __init__(self, graph=False):
        sys.path.append(os.path.join(HERE, "../tests/bench"))
        try:
            import layers
            import tuning
            if "transformers" not in sys.modules:
                layers.stand_in()
            import fla.ops.common.chunk_o as gated
            from fla.modules.activations import swiglu, swiglu_linear
            from fla.modules.convolution import causal_conv1d
            from fla.modules.fused_cross_entropy import FusedCrossEntropyLoss
            from fla.modules.fused_linear_cross_entropy import \
                fused_linear_cross_entropy_loss
            from fla.modules.fused_norm_gate import rms_norm_gated
            from fla.modules.layernorm import rms_norm
            from fla.modules.rotary import rotary_embedding
            from fla.ops.attn import parallel_attn
            from fla.ops.gated_delta_rule import chunk_gated_delta_rule
        except ImportError as e:
            sys.exit(f"--beside fla wants flash-linear-attention: {e}")
        tuning.begin()
        gated.TRITON_ABOVE_3_7_1 = True     # computed, for its time
        self.swiglu, self.rms_norm = swiglu, rms_norm
        self.swiglu_linear = swiglu_linear
        self.conv, self.gated = causal_conv1d, rms_norm_gated
        self.rotary, self.rule = rotary_embedding, chunk_gated_delta_rule
        self.loss, self.attend = fused_linear_cross_entropy_loss, parallel_attn
        if graph:
            loss = FusedCrossEntropyLoss(inplace_backward=True)
            self.loss = lambda x, label, head: loss(x @ head.t(), label)

    def norm(self, x, w):
        return self.rms_norm(x, w, None, eps=EPS)

    def rotate(self, x, angle):
        return self.rotary(x, angle.cos().to(x.dtype), angle.sin().to(x.dtype),
                           interleaved=True)

    def attention(self, q, k, v):
        return self.attend(q, k, v)

    def mixed(self, x, w):
        q, k, v = (self.conv(
            x @ w["W" + n].flatten(1), w["c" + n].flatten(0, 1),
            activation="silu")[0].unflatten(-1, w["W" + n].shape[1:])
            for n in "qkv")
        g = -w["A_log"].float().exp() * F.softplus(
            (x @ w["Wa"]).float() + w["dt"].float())
        y, _ = self.rule(q, k, v, g, (x @ w["Wb"]).sigmoid(),
                         use_qk_l2norm_in_kernel=True)
        y = self.gated(y, project(x, w["Wg"]), w["norm"], None, eps=EPS)
        return y.flatten(2) @ w["Wo"].flatten(0, 1)

    def prenorm(self, norm, x, w):
        """x, which goes on, and its norm: as in its own blocks one kernel adds
        the two that x is the sum of behind a mixing rule, and one of the way
        back what comes along both."""
        if norm != self.norm:
            x = summed(x)
            return x, norm(x, w)
        past, x = x if isinstance(x, tuple) else (None, x)
        h, x = self.rms_norm(x, w, None, residual=past, eps=EPS, prenorm=True)
        return x, h

    def delta(self, norm, x, w, weights):
        x, h = self.prenorm(norm, x, w)
        return x, self.mixed(h, weights)

    def branch(self, norm, x, w, weights):
        x, h = self.prenorm(norm, x, w)
        return x, *(F.linear(h, w) for w in weights)

    def products(self, past, f, x, weight):
        if not f:
            return past, F.linear(x, weight)
        if f == self.swiglu:
            return past + self.swiglu_linear(*x, weight, None)
        return Plain.products(past, f, x, weight)

    def entropy(self, x, head, label):
        return self.loss(x, label, head)


# What --fused names: an operation that is flin's, where others are PyTorch's;
# of products and branches, that what goes into their products is made again on
# the way back.
FUSIONS = ("norm", "rotate", "attention", "delta", "swiglu", "products",
           "branch", "entropy")


def operations(side, fused=FUSIONS, graph=False):
    own = Fla(graph) if side == "fla" else {"flin": Flin,
                                            "torch": Plain}[side]()
    return types.SimpleNamespace(**{
        f: getattr(own if f in fused else Plain, f) for f in FUSIONS})


# ---- the model ----


class Attention(nn.Module):
    def __init__(self, a):
        super().__init__()
        size = a.width // a.heads
        self.heads = a.heads, a.key_heads, a.key_heads
        self.project = nn.ModuleList(
            nn.Linear(a.width, n * size, bias=False) for n in self.heads)
        self.out = nn.Linear(a.width, a.width, bias=False)

    def forward(self, x, norm, angle, by):
        x, *found = by.branch(by.norm, x, norm,
                              [p.weight for p in self.project])
        q, k, v = (y.unflatten(-1, (n, -1))
                   for y, n in zip(found, self.heads))
        q, k = by.rotate(q, angle), by.rotate(k, angle)
        return by.products(x, None, by.attention(q, k, v).flatten(2),
                           self.out.weight)


class Delta(nn.Module):
    def __init__(self, a):
        super().__init__()
        size = a.width // a.heads
        self.layer = flin.nn.Layer("gated_deltanet", d=a.width, k=size,
                                   heads=a.heads)

    def forward(self, x, norm, angle, by):
        return by.delta(by.norm, x, norm, dict(self.layer.weights.items()))


class Block(nn.Module):
    def __init__(self, a, rule, anew):
        super().__init__()
        self.anew = anew
        self.norm = nn.Parameter(torch.ones(a.width))
        self.mix = Attention(a) if rule == "softmax" else Delta(a)
        self.norm2 = nn.Parameter(torch.ones(a.width))
        self.gate = nn.Linear(a.width, a.hidden, bias=False)
        self.up = nn.Linear(a.width, a.hidden, bias=False)
        self.down = nn.Linear(a.hidden, a.width, bias=False)

    def forward(self, x, angle, by):
        x = self.mix(x, self.norm, angle, by)
        if self.anew and all(getattr(by, f) == getattr(Flin, f) for f in
                             ("norm", "branch", "swiglu", "products")):
            return Wide.apply(x, self.norm2, self.gate.weight, self.up.weight,
                              self.down.weight)
        x, *wide = by.branch(by.norm, x, self.norm2,
                             (self.gate.weight, self.up.weight))
        return by.products(x, by.swiglu, wide, self.down.weight)


class Model(nn.Module):
    """Of tokens [B, T] and labels [B, T] to the mean loss."""

    def __init__(self, a):
        super().__init__()
        rules = MIXERS[a.mixer]
        self.embedding = nn.Embedding(a.vocabulary, a.width)
        self.blocks = nn.ModuleList(
            Block(a, rules[i % len(rules)], i < a.anew)
            for i in range(a.layers))
        self.norm = nn.Parameter(torch.ones(a.width))
        self.head = self.embedding if a.tied else \
            nn.Linear(a.width, a.vocabulary, bias=False)
        half = a.width // a.heads // 2
        rates = BASE ** (-torch.arange(half) / half)
        self.register_buffer("angle", torch.arange(a.length)[:, None] * rates,
                             persistent=False)
        for name, p in self.named_parameters():
            if p.dim() > 1 and "mix.layer" not in name:
                nn.init.normal_(p, 0, 0.02)

    def forward(self, x, label, by):
        x = self.embedding(x)
        angle = self.angle[:x.shape[1]]
        for block in self.blocks:
            x = block(x, angle, by)
        return self.ended(x, label, by)

    def ended(self, x, label, by):
        x = by.norm(x, self.norm).flatten(0, 1)
        return by.entropy(x, self.head.weight, label.flatten())

    def compile_parts(self):
        """Each block, and what follows them: blocks of a kind share what is
        compiled, which takes a tenth of the time that the whole takes."""
        for block in self.blocks:
            block.compile()
        self.ended = torch.compile(self.ended)


def made(a):
    """The model of the options, the same for each side: weights of one input
    lie beside one another, outputs before inputs as torch.nn.Linear has them.
    Angles stay float32."""
    torch.manual_seed(a.seed)
    model = Model(a)
    angle = model.angle
    model.to(a.device, a.dtype)
    model.angle = angle.to(a.device)
    for block in model.blocks:
        lay_beside([block.gate.weight, block.up.weight])
        if isinstance(block.mix, Delta):
            block.mix.layer.lay_beside()
        else:
            lay_beside([p.weight for p in block.mix.project])
    return model


# ---- training ----


def batches(a, text):
    """Endless, of the same seed the same: [batch, length + 1]."""
    draw = torch.Generator().manual_seed(a.seed)
    text = text.to(a.device)
    window = torch.arange(a.length + 1, device=a.device)
    while True:
        at = torch.randint(len(text) - a.length - 1, (a.batch, 1),
                           generator=draw)
        yield text[at.to(a.device) + window]


class Training:
    """One side's: step(rows) trains by rows [B, T + 1], and gives the loss and
    the gradients' norm as tensors."""

    def __init__(self, a, model, loss):
        self.a, self.model, self.loss = a, model, loss
        self.cuda = a.device == "cuda"
        self.optimiser = AdamW(model.parameters())
        self.graph = self.rows = None
        self.seen = 0

    def one(self, rows):
        self.optimiser.zero_grad()
        loss = self.loss(rows[:, :-1].contiguous(), rows[:, 1:].contiguous())
        loss.backward(Flin.ones_of((), loss.device))
        return loss.detach(), self.optimiser.step()

    def step(self, rows):
        self.seen += 1                      # up to the full rate in ten
        self.optimiser.begin(self.a.rate * min(1, self.seen / 10))
        if not (self.a.graph and self.cuda):
            return self.one(rows)
        if self.graph is None and self.seen <= WARM:
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                result = self.one(rows)
            torch.cuda.current_stream().wait_stream(side)
            return result
        if self.graph is None:
            self.rows = rows.clone()
            self.optimiser.zero_grad()
            torch.cuda.synchronize()
            # what the library worked in on other streams is not the graph's
            getattr(torch._C, "_cuda_clearCublasWorkspaces", int)()
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.result = self.one(self.rows)
        self.rows.copy_(rows)
        self.graph.replay()
        return self.result


def train(a, side, text, fused=FUSIONS):
    """Trains one side: losses, norms of gradients, milliseconds of steps, the
    peak of memory in bytes (None on a CPU)."""
    cuda = a.device == "cuda"
    if cuda:
        torch.cuda.empty_cache()
    model = made(a)
    by = operations(side, fused, a.graph)
    loss = functools.partial(model, by=by)
    if side == "torch" and a.compile and a.parts:
        model.compile_parts()
    elif side == "torch" and a.compile:
        loss = torch.compile(loss)
    run = Training(a, model, loss)
    draw = batches(a, text)
    losses = torch.zeros(a.steps, device=a.device)
    norms = torch.zeros(a.steps, device=a.device)
    times, begun = [], time.monotonic()
    for i in range(a.steps):
        rows = next(draw)
        if cuda:
            if i == WARM:
                torch.cuda.synchronize()
                torch.cuda.reset_peak_memory_stats()
            torch.cuda.synchronize()
        start = time.perf_counter()
        losses[i], norms[i] = run.step(rows)
        if cuda:
            torch.cuda.synchronize()
        times.append(1000 * (time.perf_counter() - start))
        if i == 0 and a.verbose:
            print(f"  {side}: first step {time.monotonic() - begun:.1f} s",
                  flush=True)
    if cuda and a.kernels:
        kernels_of(run, next(draw), a.kernels)
    peak = torch.cuda.max_memory_allocated() if cuda else None
    if cuda and a.memory:
        memory_of(run, next(draw), a.memory)
    return {"side": side, "fused": list(fused), "losses": losses.tolist(),
            "norms": norms.tolist(), "times": times,
            "parameters": sum(p.numel() for p in model.parameters()),
            "peak": peak}


def typical(r):
    """Milliseconds of a step once all is compiled and recorded."""
    later = r["times"][WARM + 2:] or r["times"][-1:]
    return statistics.median(later)


def line(a, r):
    ms = typical(r)
    peak = "" if r["peak"] is None else f"{r['peak'] / 2**20:8.0f} MB"
    return (f"{a.mixer:15} {r['side']:6} {ms:9.2f} ms a step "
            f"{1000 * a.batch * a.length / ms:10.0f} tokens/s {peak}  loss "
            f"{r['losses'][0]:.3f} -> {statistics.fmean(r['losses'][-5:]):.3f}"
            f"  gradient norm up to {max(r['norms']):.2f}")


def beside(own, other):
    """flin's figures, of another side's."""
    found = f"{typical(other) / typical(own):.2f} times its tokens a second"
    if own["peak"] and other["peak"]:
        found += f", {own['peak'] / other['peak']:.2f} of its memory"
    apart = max(abs(x - y) for x, y in zip(own["losses"], other["losses"]))
    return f"flin beside {other['side']}: {found}, losses at most " \
        f"{apart:.1e} apart"


# ---- the command ----


def options(words=None):
    p = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--mixer", choices=MIXERS, default="softmax")
    p.add_argument("--beside", default="", metavar="A,B",
                   help="other sides: torch, fla")
    p.add_argument("--alone", metavar="SIDE", choices=SIDES, default="flin",
                   help="the first side, if it is not to be flin")
    p.add_argument("--fused", default=",".join(FUSIONS), metavar="A,B",
                   help="what is flin's, of " + ", ".join(FUSIONS))
    p.add_argument("--graph", action="store_true",
                   help="a step as a CUDA graph, on all sides")
    p.add_argument("--no-compile", dest="compile", action="store_false",
                   help="PyTorch's side without torch.compile")
    p.add_argument("--parts", action="store_true",
                   help="torch.compile of each block, not of the whole")
    p.add_argument("--plan", default=Flin.plan, choices=("", "stack"),
                   help="of flin's layers of gated DeltaNet ('': what is "
                   "fastest; stack: what keeps less for the way back)")
    p.add_argument("--logits", type=int, default=Entropy.LOGITS, metavar="MB",
                   help="that flin's loss has at a time (more is faster)")
    p.add_argument("--anew", type=int, default=1, metavar="N",
                   help="layers whose SwiGLU flin's side makes again on the "
                   "way back, of its input alone")
    p.add_argument("--tied", action="store_true",
                   help="the head is the embedding")
    p.add_argument("--device", default="cuda" if torch.cuda.is_available()
                   else "cpu")
    p.add_argument("--dtype", choices=("float32", "bfloat16"),
                   help="of weights and values (bfloat16 on a GPU)")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--text", metavar="FILE")
    p.add_argument("--svg", metavar="FILE", help="the losses, drawn")
    p.add_argument("--log", metavar="FILE", help="a line of JSON each side")
    p.add_argument("--limit", type=float, default=None, metavar="SECONDS",
                   help="that a side beside the first may take")
    p.add_argument("--kernels", type=int, default=0, metavar="N",
                   help="says which N kernels of a step take longest")
    p.add_argument("--memory", type=int, default=0, metavar="N",
                   help="says what a step's peak of memory holds, by the N "
                   "lines that hold most")
    p.add_argument("--verbose", action="store_true")
    for name, value in FULL.items():
        p.add_argument("--" + name.replace("_", "-"), type=type(value))
    a = p.parse_args(words)
    for name, value in (FULL if a.device == "cuda" else SMALL).items():
        if getattr(a, name) is None:
            setattr(a, name, value)
    a.dtype = getattr(torch, a.dtype or (
        "bfloat16" if a.device == "cuda" else "float32"))
    a.compile = a.compile and a.device == "cuda"
    Flin.plan, Entropy.LOGITS = a.plan or None, a.logits
    a.beside = [s for s in a.beside.split(",") if s]
    a.fused = [f for f in a.fused.split(",") if f]
    for given, known in ((a.beside, SIDES), (a.fused, FUSIONS)):
        for one in given:
            if one not in known:
                p.error(f"'{one}': one of {', '.join(known)} is wanted")
    if a.width % a.heads or a.heads % a.key_heads or a.width // a.heads % 2:
        p.error(f"{a.heads} heads do not share a width of {a.width} in pairs "
                f"of channels, or {a.key_heads} key heads them")
    return a


def apart(a, side):
    """The same in a process of its own; None: it did not end, or failed."""
    words, skip = [], False
    for word in sys.argv[1:]:
        name = word.split("=")[0]
        if skip or name in ("--beside", "--alone", "--svg", "--log"):
            skip = not skip and "=" not in word
            continue
        words.append(word)
    with tempfile.TemporaryDirectory() as folder:
        log = os.path.join(folder, "log")
        try:
            subprocess.run([sys.executable, os.path.abspath(__file__), *words,
                            "--alone", side, "--log", log], check=True,
                           timeout=a.limit)
            with open(log, encoding="utf-8") as f:
                return json.loads(f.readlines()[-1])
        except subprocess.TimeoutExpired:
            print(f"{side}: no result in {a.limit:g} s", flush=True)
        except subprocess.CalledProcessError as e:
            print(f"{side}: it ended with {e.returncode}", flush=True)
    return None


def main():
    a = options()
    text = tokens_of(words_of(a.text), a.vocabulary)
    runs = []
    for side in [a.alone] + [s for s in a.beside if s != a.alone]:
        if side == a.alone:
            fused = a.fused if side == "flin" else FUSIONS
            run = train(a, side, text, fused)
            print(f"{run['parameters'] / 1e6:.1f} million parameters, "
                  f"{a.layers} layers, {a.batch} x {a.length} tokens a step, "
                  f"{len(text)} tokens of text", flush=True)
            print(line(a, run), flush=True)
        else:
            run = apart(a, side)
            if run is None:
                continue
        runs.append(run)
        if runs[0]["side"] == "flin" and side != "flin":
            print(beside(runs[0], run), flush=True)
        if a.log:
            with open(a.log, "a", encoding="utf-8") as f:
                print(json.dumps({"mixer": a.mixer, **run}), file=f)
    if a.svg:
        with open(a.svg, "w", encoding="utf-8") as f:
            f.write(flin.curves({r["side"]: r["losses"] for r in runs},
                                title=f"{a.mixer}, {a.layers} layers",
                                x="step", y="loss"))


if __name__ == "__main__":
    main()
