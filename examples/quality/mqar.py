"""Multi-query associative recall (Arora et al., 2023, arXiv:2312.04927): pairs
of keys and values, then keys that are asked for at random places; the answer is
the key's value. Prints which part is right.

    python3 examples/quality/mqar.py [--rules A,B] [--full]"""
import sys

import sweep
import torch

VOCABULARY = 256                # keys below the half, values above
SIZES = {False: dict(width=64, heads=2, blocks=2, steps=400, batch_size=32,
                     pairs="8,16", length=64),
         True: dict(width=128, heads=2, blocks=2, steps=3000, batch_size=64,
                    pairs="64,128", length=512)}
higher = True


def sizes(a, name):
    return VOCABULARY, VOCABULARY


def batch(a, name, draw, rows=None):
    """Tokens [B, T], and what is to be answered at each."""
    n, rows = int(name.split()[0]), rows or a.batch_size
    half = VOCABULARY // 2
    keys = torch.rand(rows, half - 1, generator=draw).argsort(1)[:, :n] + 1
    values = torch.randint(half, VOCABULARY, (rows, n), generator=draw)
    x = torch.zeros(rows, a.length, dtype=torch.long)
    label = torch.full_like(x, sweep.IGNORED)
    x[:, 0:2 * n:2], x[:, 1:2 * n:2] = keys, values
    places = torch.rand(rows, a.length - 2 * n,
                        generator=draw).argsort(1)[:, :n] + 2 * n
    x.scatter_(1, places, keys)
    label.scatter_(1, places, values)
    return x, label


def score(a, name, model):
    x, label = batch(a, name, torch.Generator().manual_seed(-1), 256)
    return sweep.accuracy(model, x.to(a.device), label.to(a.device))


if __name__ == "__main__":
    a = sweep.arguments(__doc__, SIZES, pairs=("how many", None))
    for n in map(int, a.pairs.split(",")):
        if 3 * n > a.length:
            sys.exit(f"{n} pairs and as many questions want a length of "
                     f"{3 * n}: there is {a.length}")
    sweep.run("mqar", a, [f"{n} pairs" for n in a.pairs.split(",")])
