"""Multi-query associative recall (Arora et al., 2023, arXiv:2312.04927): pairs
of keys and values, then keys that are asked for at random places; the answer is
the key's value. Prints which part is right. Where it trains, rows have all
pairs, a half, a quarter ..., down to eight: few are learned first. Decays
begin so that a state keeps what it has read for hundreds of tokens.

    python3 examples/quality/mqar.py [--rules A,B] [--full] [--pairs N,N]
        [--vocabulary 256]"""
import sys

import sweep
import torch

VOCABULARY = 256                # if nothing is said
SIZES = {False: dict(width=64, heads=2, blocks=2, taps=4, steps=400,
                     batch_size=32, length=64, keep=4, pairs="8,16"),
         True: dict(width=64, heads=1, blocks=2, taps=4, steps=4000,
                    batch_size=32, length=256, keep=4, pairs="64")}
higher = True


def sizes(a, name):
    """Keys below the half, values above."""
    return int(a.vocabulary), int(a.vocabulary)


def batch(a, name, draw, rows, halved=None):
    """Tokens [rows, T], and what is to be answered at each. halved: pairs are
    halved less than so many times; while eight are left, if nothing is said."""
    n, all_of = int(name.split()[0]), int(a.vocabulary)
    halved = halved or max(4, (n // 8).bit_length())
    half = all_of // 2
    make = {"generator": draw, "device": draw.device}
    keys = torch.rand(rows, half - 1, **make).argsort(1)[:, :n] + 1
    values = torch.randint(half, all_of, (rows, n), **make)
    left = (n >> torch.randint(halved, (rows, 1), **make)).clamp(min=1)
    none = torch.arange(n, device=draw.device) >= left
    keys, values = keys.masked_fill(none, 0), values.masked_fill(none, 0)
    x = torch.zeros(rows, a.length, dtype=torch.long, device=draw.device)
    label = torch.full_like(x, sweep.IGNORED)
    x[:, 0:2 * n:2], x[:, 1:2 * n:2] = keys, values
    places = torch.rand(rows, a.length - 2 * n,
                        **make).argsort(1)[:, :n] + 2 * n
    x.scatter_(1, places, keys)
    label.scatter_(1, places, values.masked_fill(none, sweep.IGNORED))
    return x, label


def scores(a, name, model):
    found = batch(a, name, torch.Generator().manual_seed(-1), 256,
                  halved=1)
    return {"right": sweep.accuracy(model, *found, a.device)}


if __name__ == "__main__":
    a = sweep.arguments(__doc__, SIZES, pairs=("how many", None),
                        vocabulary=("of keys and values", VOCABULARY))
    of = "" if int(a.vocabulary) == VOCABULARY else f" of {a.vocabulary}"
    for n in map(int, a.pairs.split(",")):
        if 3 * n > a.length:
            sys.exit(f"{n} pairs and as many questions want a length of "
                     f"{3 * n}: there is {a.length}")
        if n >= int(a.vocabulary) // 2:
            sys.exit(f"{n} pairs want a vocabulary of {2 * n + 2}, half of it "
                     f"keys: there is {a.vocabulary}")
    sweep.run("mqar", a, [f"{n} pairs{of}" for n in a.pairs.split(",")])
