"""Words of groups: each token is an element, the answer the product of all so
far. Trained on short sequences, tested on long ones; prints which part of the
answers is right in the second half of long ones, and of short ones. Chance is
1 in as many elements. Blocks have no convolution here.

    python3 examples/quality/track.py [--groups parity,S3] [--full]

parity: the sum of bits; mod5: of digits, modulo 5; S3 and S5: permutations of
three and five things, S5's tokens being two that make up all."""
import itertools
import sys

import sweep
import torch

SIZES = {False: dict(width=64, heads=2, blocks=1, taps=1, steps=600,
                     batch_size=64, length=32, test=128),
         True: dict(width=64, heads=2, blocks=1, taps=1, steps=2000,
                    batch_size=32, length=64, test=256)}
higher = True
tables = {}


def permutations(n):
    """Elements, the table of products [element before, token], and which
    element each token is."""
    elements = list(itertools.permutations(range(n)))
    number = {p: i for i, p in enumerate(elements)}
    tokens = elements if n < 4 else [
        (1, 0, *range(2, n)), (*range(1, n), 0)]
    return [[number[tuple(p[t[i]] for i in range(n))] for t in tokens]
            for p in elements]


def cyclic(n):
    return [[(i + t) % n for t in range(n)] for i in range(n)]


GROUPS = {"parity": lambda: cyclic(2), "mod5": lambda: cyclic(5),
          "S3": lambda: permutations(3), "S5": lambda: permutations(5)}


def products(name):
    if name not in tables:
        tables[name] = torch.tensor(GROUPS[name]())
    return tables[name]


def sizes(a, name):
    elements, tokens = products(name).shape
    return tokens, elements


def batch(a, name, draw, rows, length=None):
    product = products(name).to(draw.device)
    x = torch.randint(product.shape[1], (rows, length or a.length),
                      generator=draw, device=draw.device)
    label, at = torch.empty_like(x), torch.zeros_like(x[:, 0])
    for t in range(x.shape[1]):
        at = product[at, x[:, t]]
        label[:, t] = at
    return x, label


def scores(a, name, model):
    found = {}
    for length in a.test, a.length:
        x, label = batch(a, name, torch.Generator().manual_seed(-1), 64, length)
        label[:, :length // 2] = sweep.IGNORED
        found[f"{length} tokens"] = sweep.accuracy(model, x, label, a.device)
    return found


if __name__ == "__main__":
    a = sweep.arguments(__doc__, SIZES, groups=(
        "of " + ", ".join(GROUPS), "parity,mod5,S3,S5"))
    names = a.groups.split(",")
    for name in names:
        if name not in GROUPS:
            sys.exit(f"there is no group '{name}'; groups: "
                     + ", ".join(GROUPS))
    sweep.run("track", a, names)
