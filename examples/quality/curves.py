"""The same model, weights and data, trained with the rule computed by flin's
chunks, token by token in PyTorch, and by flash-linear-attention where that is
installed: how far apart the losses are, of their size.

    python3 examples/quality/curves.py [--rule kda] [--full] [--svg FILE]"""
import argparse
import importlib

import models
import text
import torch
import training

# What flash-linear-attention calls them.
RULES = {"deltanet": ("delta_rule", "chunk_delta_rule"),
         "gated_deltanet": ("gated_delta_rule", "chunk_gated_delta_rule"),
         "kda": ("kda", "chunk_kda")}


def token_loop(q, k, v, beta, g=None, **options):
    """The rule as its paper has it, one token after another; a decay is of the
    token, or of each key, or there is none."""
    S, out = 0, []
    g = torch.zeros_like(beta) if g is None else g
    g = g[..., None] if g.dim() == 3 else g
    q = q * q.shape[-1] ** -0.5
    for t in range(q.shape[1]):
        key = k[:, t, :, :, None]
        S = g[:, t, :, :, None].exp() * (
            S if t else torch.zeros_like(key * v[:, t, :, None]))
        new = beta[:, t, :, None] * (v[:, t] - (key * S).sum(2))
        S = S + key * new[:, :, None]
        out.append((q[:, t, :, :, None] * S).sum(2))
    return torch.stack(out, 1), None


def untuned():
    """flash-linear-attention tries dozens of kernels, for minutes; the first
    one computes the same."""
    from triton.runtime.autotuner import Autotuner
    tune = Autotuner.__init__

    def first(self, fn, arg_names, configs, *rest, **more):
        tune(self, fn, arg_names, configs[:1], *rest, **more)
    Autotuner.__init__ = first


def peer(rule):
    untuned()
    module, name = RULES[rule]
    run = getattr(importlib.import_module("fla.ops." + module), name)

    def halved(**x):
        """In bfloat16, as its kernels want matrices; gates as they are."""
        half = {n: t.bfloat16() if n in ("q", "k", "v", "beta") else t
                for n, t in x.items() if isinstance(t, torch.Tensor)}
        y, state = run(**{**x, **half})
        return y.float(), state
    return halved


ENGINES = {"flin": None, "token loop": lambda rule: token_loop,
           "flash-linear-attention": peer}


class Instead:
    """What a layer calls in place of a variant."""

    def __init__(self, variant, run):
        self.variant, self.run = variant, run

    def __getattr__(self, name):
        return getattr(self.variant, name)

    def __call__(self, **x):
        return self.run(**x)


def losses(a, engine):
    """Of each step."""
    model = models.model([a.seed], a.rule, 256, 256, a.width, a.heads, a.blocks)
    for block in model.blocks:
        if ENGINES[engine]:
            block.mix.variant = Instead(block.mix.variant,
                                        ENGINES[engine](a.rule))
    draw = torch.Generator().manual_seed(a.seed)

    def data(n):
        return [t[..., None].unflatten(0, (n, a.batch_size)).to(a.device)
                for t in text.batch(a, "", draw, n * a.batch_size)]
    (_, found), = training.take_turns(
        [training.train(model, data, [a.rate], a.steps, a.device)], 1,
        a.device)
    if isinstance(found, Exception):
        raise found
    return found[:, 0].cpu()


def main():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("--rule", default="gated_deltanet", choices=RULES)
    p.add_argument("--full", action="store_true", help="larger, for a GPU")
    p.add_argument("--engines", default=",".join(ENGINES), metavar="A,B",
                   help="of these")
    p.add_argument("--steps", type=int)
    p.add_argument("--rate", type=float, default=1e-3)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--device", default="cuda" if torch.cuda.is_available()
                   else "cpu")
    p.add_argument("--svg", metavar="FILE", help="the losses")
    a = p.parse_args()
    a.width, a.heads, a.blocks = (128, 4, 2) if a.full else (32, 2, 1)
    a.batch_size, a.length = (16, 128) if a.full else (4, 64)
    a.steps = a.steps or (500 if a.full else 50)
    found = {}
    for engine in a.engines.split(","):
        try:
            found[engine] = losses(a, engine)
        except (ImportError, RuntimeError) as e:
            print(f"{engine}: {e}")
            continue
        own, first = found[engine], next(iter(found.values()))
        print(f"{engine}: {own[0]:.4f} to {own[-1]:.4f}; apart from the first "
              f"by {((own - first).abs() / first).max():.1e}", flush=True)
    if a.svg:
        with open(a.svg, "w", encoding="utf-8") as f:
            f.write(models.flin.curves(
                {n: x.tolist() for n, x in found.items()}, x="step",
                y="loss"))


if __name__ == "__main__":
    main()
