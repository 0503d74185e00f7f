"""Small models whose mixing rule is all that differs: embedding; blocks of a
causal convolution over four tokens, the rule, and an MLP; a linear head."""
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
return flin.stdlib.%s:map { beta = function (b) return 2 * b end }
"""

# What flin.load takes; None: softmax attention.
RULES = {n: n for n in (
    "linear", "gla", "mamba2", "mamba3", "deltanet", "gated_deltanet", "kda",
    "rwkv7", "deltaproduct", "precond_gdn", "precond_mamba3", "deltanet_rope",
    "momentum_deltanet")}
RULES |= {"signed_gated_deltanet": SIGNED % "gated_deltanet",
          "signed_deltaproduct": SIGNED % "deltaproduct", "softmax": None}

# Rules of successive blocks, by turns.
HYBRID = "gated_deltanet", "softmax"
NAMES = [*RULES, "hybrid"]
loaded = {}


class Softmax(nn.Module):
    """Causal attention, with the same gate and norm as the other rules."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.gate = nn.Linear(width, width, bias=False)
        self.norm = nn.RMSNorm(width // heads)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x):
        q, k, v = (t.unflatten(2, (self.heads, -1)).transpose(1, 2)
                   for t in self.qkv(x).chunk(3, -1))
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        o = self.norm(o).transpose(1, 2).flatten(2) * F.silu(self.gate(x))
        return (self.out(o),)


def mixer(rule, width, heads):
    if RULES[rule] is None:
        return Softmax(width, heads)
    if rule not in loaded:
        loaded[rule] = flin.load(RULES[rule])
    return flin.nn.LinearAttention(width, loaded[rule], num_heads=heads)


class Block(nn.Module):
    def __init__(self, rule, width, heads):
        super().__init__()
        self.norm, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.conv = nn.Conv1d(width, width, 4, groups=width, padding=3)
        self.mix = mixer(rule, width, heads)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.SiLU(),
                                 nn.Linear(2 * width, width))

    def forward(self, x):
        h = self.conv(self.norm(x).mT)[..., :x.shape[1]].mT
        x = x + self.mix(F.silu(h))[0]
        return x + self.mlp(self.norm2(x))


def model(rule, tokens, classes, width, heads, blocks):
    """Of tokens below `tokens` [B, T] to scores of classes [B, T, classes]."""
    rules = HYBRID if rule == "hybrid" else (rule,)
    return nn.Sequential(
        nn.Embedding(tokens, width),
        *(Block(rules[i % len(rules)], width, heads) for i in range(blocks)),
        nn.RMSNorm(width), nn.Linear(width, classes))
