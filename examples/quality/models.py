"""Small models whose mixing rule is all that differs: embedding; blocks of a
causal convolution, the rule, and an MLP; a linear head. Several runs, each
with its own weights, are one model: their channels lie beside one another, and
so their heads do."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "../../lang/python"))
try:
    import torch
except ImportError:
    sys.exit("this example wants PyTorch (Debian: python3-torch)")
import flin                                         # noqa: E402
import flin.nn                                      # noqa: E402
import torch.nn.functional as F                     # noqa: E402
from torch import nn                                # noqa: E402

# Steps that go up to twice what the delta rule corrects: a key's eigenvalue
# is then from -1 to 1 (Grazzi et al., 2024, arXiv:2411.12537).
SIGNED = """local flin = require "flin"
return flin.stdlib.%s:map { %s = function (x) return 2 * x end }
"""

# What flin.load takes; None: softmax attention.
RULES = {n: n for n in (
    "linear", "gla", "mamba2", "mamba3", "deltanet", "gated_deltanet", "kda",
    "rwkv7", "deltaproduct", "precond_gdn", "precond_mamba3", "deltanet_rope",
    "momentum_deltanet")}
RULES |= {"signed_" + n: SIGNED % (n, "beta")
          for n in ("deltanet", "gated_deltanet", "deltaproduct")}
# In layers some inputs of these rules are made of others, as their papers have
# it. Mamba-3's C and B come with a norm.
NORMED = """local flin = require "flin"
local function normed(x) return flin.rms_norm(x, "k") end
return flin.stdlib.%s:map { C = normed, B = normed }
"""
RULES |= {n: NORMED % n for n in ("mamba3", "precond_mamba3")}
# What RWKV-7 removes is its key's, channels weighed, and it writes the more
# the more it removes; a removal that knows nothing of keys takes from all that
# is held.
RWKV7 = """local flin = require "flin"
local exp, dot, outer = flin.exp, flin.dot, flin.outer
return flin.variant {
  name  = "rwkv7_of_keys",
  input = { r = "t k", k = "t k : unit_norm", v = "t v",
            w = "t k : log_decay", a = "t k : unit", xi = "k", alpha = "k" },
  state = { S = "k v" },
  initial = { xi = 1, alpha = 1 },
  step  = function (x, s)
    local kappa, a = flin.l2norm(x.xi * x.k), %s
    local S = exp(x.w) * s.S
            - outer(a * kappa, dot(kappa, s.S))
            + outer(x.k * (1 + (a - 1) * x.alpha), x.v)
    return { S = S }, dot(x.r, S)
  end,
}"""
RULES |= {"rwkv7": RWKV7 % "x.a", "signed_rwkv7": RWKV7 % "2 * x.a"}
# Angles of a pair are multiples of its rate, as rotary embeddings have them:
# slow pairs find a key again, fast ones count.
RULES["deltanet_rope"] = """local flin = require "flin"
local dot, outer, rotate = flin.dot, flin.outer, flin.rotate
return flin.variant {
  name  = "deltanet_rope_of_rates",
  input = { q = "t k", k = "t k : unit_norm", v = "t v", beta = "t : unit",
            theta = "t p : angle", rate = "p" },
  state = { S = "k v", phi = "p : angle" },
  initial = { theta = 0, rate = flin.initial.frequencies() },
  step  = function (x, s)
    local phi = s.phi + x.rate * x.theta
    local q, k = rotate(x.q, phi), rotate(x.k, phi)
    local S = s.S + outer(x.beta * k, x.v - dot(k, s.S))
    return { S = S, phi = phi }, dot(q, S)
  end,
}"""
# Momentum's feedback is its key, decayed: along another one a step may grow.
RULES["momentum_deltanet"] = """local flin = require "flin"
local exp, dot, outer = flin.exp, flin.dot, flin.outer
return flin.variant {
  name  = "momentum_of_keys",
  input = { q = "t k", k = "t k : unit_norm", v = "t v", g = "t : log_decay",
            mu = "t : log_decay", beta = "t : unit", eta = "t : unit" },
  state = { S = "k v", M = "k v" },
  initial = { mu = -0.1, eta = 0.1 },
  step  = function (x, s)
    local M = exp(x.mu) * s.M
            - outer(x.eta * x.k, x.v - exp(x.g) * dot(x.k, s.S))
    local S = exp(x.g) * s.S - x.beta * M
    return { S = S, M = M }, dot(x.q, S)
  end,
}"""
# Four such steps a token, whose products make all permutations of five.
RULES["signed_deltaproduct4"] = """local flin = require "flin"
local exp, dot, outer, at = flin.exp, flin.dot, flin.outer, flin.at
return flin.variant {
  name  = "deltaproduct4",
  axes  = { n = 4 },
  input = { q = "t k", k = "t n k : unit_norm", v = "t n v",
            g = "t : log_decay", beta = "t n : unit" },
  state = { S = "k v" },
  step  = function (x, s)
    local S = exp(x.g) * s.S
    for j = 1, 4 do
      local k, v = at(x.k, "n", j), at(x.v, "n", j)
      S = S + outer(2 * at(x.beta, "n", j) * k, v - dot(k, S))
    end
    return { S = S }, dot(x.q, S)
  end,
}"""
RULES |= {"softmax": None}

# Rules of successive blocks, by turns.
HYBRID = "gated_deltanet", "softmax"
NAMES = [*RULES, "hybrid"]
loaded = {}


def rms_norm(x, eps=1e-6):
    if hasattr(F, "rms_norm"):              # PyTorch 2.4
        return F.rms_norm(x, x.shape[-1:], eps=eps)
    return x * (x.square().mean(-1, keepdim=True) + eps).rsqrt()


def attention(q, k, v):
    if hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    scores = q @ k.mT * q.shape[-1] ** -0.5
    later = torch.ones(scores.shape[-2:], device=q.device).triu(1).bool()
    return scores.masked_fill(later, -torch.inf).softmax(-1) @ v


def per_run(x, runs):
    """[B, T, runs * inputs] to [B, runs, T, inputs]."""
    return x.unflatten(-1, (runs, -1)).transpose(1, 2)


def joined(x, weight, bias=None):
    """[B, runs, T, inputs] by each run's matrix, to [B, T, runs * outputs]. A
    product for each sequence: the weights' gradient, a small matrix summed
    over all tokens, else keeps few multiprocessors busy."""
    y = torch.matmul(x, weight)
    return (y if bias is None else y + bias).transpose(1, 2).flatten(2)


class Linear(nn.Module):
    """A matrix for each run: [..., runs * inputs] to [..., runs * outputs]."""

    def __init__(self, runs, inputs, outputs, bias=True):
        super().__init__()
        bound = inputs ** -0.5
        self.weight = nn.Parameter(
            torch.empty(runs, inputs, outputs).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.zeros(runs, 1, outputs)) if bias \
            else None

    def forward(self, x):
        return joined(per_run(x, self.weight.shape[0]), self.weight,
                      self.bias)


class Embedding(nn.Module):
    """Tokens [B, T, runs] to [B, T, runs * width]."""

    def __init__(self, runs, tokens, width):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(runs, tokens, width))

    def forward(self, x):
        tokens = torch.arange(self.weight.shape[1], device=x.device)
        one = x.transpose(1, 2)[..., None] == tokens
        return joined(one.to(self.weight), self.weight)


class Norm(nn.Module):
    def __init__(self, runs, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(runs, width))

    def forward(self, x):
        x = x.unflatten(-1, self.weight.shape)
        return (rms_norm(x) * self.weight).flatten(-2)


class Convolution(nn.Module):
    """Of each channel with the tokens before it."""

    def __init__(self, channels, taps):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(channels, taps).uniform_(
            -taps ** -0.5, taps ** -0.5))
        self.bias = nn.Parameter(torch.zeros(channels))
        if taps == 1:
            nn.init.ones_(self.weight)

    def forward(self, x):
        tokens, taps = x.shape[1], self.weight.shape[1]
        past = F.pad(x, (0, 0, taps - 1, 0))
        return sum((past[:, i:i + tokens] * self.weight[:, i]
                    for i in range(taps)), self.bias)


class Softmax(nn.Module):
    """Causal attention, with the same gate and norm as the other rules."""

    def __init__(self, runs, width, heads):
        super().__init__()
        self.q, self.k, self.v, self.gate, self.out = (
            Linear(runs, width, width, bias=False) for _ in range(5))
        self.norm = Norm(runs * heads, width // heads)

    def forward(self, x):
        heads = self.norm.weight.shape[0]
        q, k, v = (f(x).unflatten(2, (heads, -1)).transpose(1, 2)
                   for f in (self.q, self.k, self.v))
        o = attention(q, k, v)
        o = self.norm(o.transpose(1, 2).flatten(2))
        return (self.out(o * F.silu(self.gate(x))),)


def mixer(rule, runs, width, heads, keep):
    """flin's layer, with a matrix for each run where it has one for all. keep:
    what the bias of log decays begins with; where one is a rate times a
    positive number (Mamba), the rate begins as exp(-keep)."""
    if RULES[rule] is None:
        return Softmax(runs, width, heads)
    if rule not in loaded:
        loaded[rule] = flin.load(RULES[rule])
    layer = flin.nn.LinearAttention(runs * width, loaded[rule],
                                    num_heads=runs * heads)
    begun = loaded[rule].initial()
    for a in loaded[rule].inputs:
        if a.timed:
            whole = layer.projections[a.name]
            own = Linear(runs, width, whole.out_features // runs,
                         bias=whole.bias is not None)
            if whole.bias is not None:
                own.bias.data = whole.bias.detach().view(runs, 1, -1)
                if a.name in begun:
                    own.weight.data.zero_()
                elif a.domain == "log_decay":
                    own.bias.data.fill_(keep)
            layer.projections[a.name] = own
    if keep and "A_log" in layer.constants:
        layer.constants["A_log"].data.fill_(-keep)
    inner = layer.out.in_features // runs
    layer.gate = Linear(runs, width, inner, bias=False)
    layer.out = Linear(runs, inner, width, bias=False)
    layer.norm = nn.Parameter(layer.norm.detach().repeat(runs * heads, 1))
    return layer


class Block(nn.Module):
    def __init__(self, rule, runs, width, heads, taps, keep):
        super().__init__()
        self.norm, self.norm2 = Norm(runs, width), Norm(runs, width)
        self.conv = Convolution(runs * width, taps)
        self.mix = mixer(rule, runs, width, heads, keep)
        self.mlp = nn.Sequential(Linear(runs, width, 2 * width), nn.SiLU(),
                                 Linear(runs, 2 * width, width))

    def forward(self, x):
        x = x + self.mix(F.silu(self.conv(self.norm(x))))[0]
        return x + self.mlp(self.norm2(x))


class Model(nn.Module):
    """Tokens [B, T, runs], or where `numbers` so many [B, T, inputs, runs], to
    scores of classes, or numbers, [B, T, runs, outputs]. keep: as mixer has
    it."""

    def __init__(self, rule, inputs, outputs, width, heads, blocks, taps=4,
                 numbers=False, keep=0, runs=1):
        super().__init__()
        self.runs = runs
        rules = HYBRID if rule == "hybrid" else (rule,)
        self.embedding = (Linear if numbers else Embedding)(
            runs, inputs, width)
        self.blocks = nn.Sequential(*(
            Block(rules[i % len(rules)], runs, width, heads, taps,
                  keep) for i in range(blocks)))
        self.norm = Norm(runs, width)
        self.head = Linear(runs, width, outputs)

    def forward(self, x):
        if x.is_floating_point():
            x = x.mT.flatten(2)
        x = self.head(self.norm(self.blocks(self.embedding(x))))
        return x.unflatten(-1, (self.runs, -1))


def model(seeds, *what, **named):
    """The models that these seeds begin, as one."""
    many = Model(*what, runs=len(seeds), **named)
    with torch.no_grad():
        for i, seed in enumerate(seeds):
            torch.manual_seed(seed)
            for p, own in zip(many.parameters(),
                              Model(*what, **named).parameters()):
                p.view(len(seeds), -1)[i] = own.flatten()
    return many
