"""A byte language model: bits a byte on the last tenth of a text that it has
not seen (default: flin's own pages).

    python3 examples/quality/text.py [--rules A,B] [--full]
    TEXT=FILE python3 examples/quality/text.py"""
import functools
import glob
import math
import os

import sweep
import torch

HERE = os.path.dirname(os.path.abspath(__file__))
SIZES = {False: dict(width=64, heads=2, blocks=2, steps=200, batch_size=8,
                     length=128),
         True: dict(width=256, heads=4, blocks=4, steps=3000, batch_size=32,
                    length=512)}
higher = False


@functools.lru_cache(maxsize=None)
def text():
    """What is trained on, what is tested on."""
    files = [os.environ["TEXT"]] if "TEXT" in os.environ else sorted(
        glob.glob(HERE + "/../../docs/*.md")) + [HERE + "/../../README.md"]
    found = b""
    for file in files:
        with open(file, "rb") as f:
            found += f.read()
    found = torch.frombuffer(bytearray(found), dtype=torch.uint8).long()
    cut = len(found) * 9 // 10
    return found[:cut], found[cut:]


def sizes(a, name):
    return 256, 256


def batch(a, name, draw):
    seen = text()[0]
    at = torch.randint(len(seen) - a.length - 1, (a.batch_size,),
                       generator=draw)
    rows = torch.stack([seen[i:i + a.length + 1] for i in at.tolist()])
    return rows[:, :-1], rows[:, 1:]


def score(a, name, model):
    """Over the unseen, row by row."""
    unseen = text()[1]
    n = (len(unseen) - 1) // a.length
    x = unseen[:n * a.length].view(n, -1)
    label = unseen[1:n * a.length + 1].view(n, -1)
    bits = 0
    for i in range(0, n, 16):
        y = model(x[i:i + 16].to(a.device)).flatten(0, 1)
        bits += float(torch.nn.functional.cross_entropy(
            y, label[i:i + 16].flatten().to(a.device), reduction="sum"))
    return bits / (n * a.length) / math.log(2)


if __name__ == "__main__":
    sweep.run("text", sweep.arguments(__doc__, SIZES),
              ["bits a byte"])
