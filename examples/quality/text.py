"""A byte language model: bits a byte on the last tenth of each file of a text,
which it has not seen (default: flin's own pages and Lua and Python).

    python3 examples/quality/text.py [--rules A,B] [--full]
    TEXT=FILE python3 examples/quality/text.py"""
import functools
import glob
import math
import os

import sweep
import torch
import training

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
SIZES = {False: dict(width=64, heads=2, blocks=2, taps=4, steps=200,
                     batch_size=8, length=128),
         True: dict(width=128, heads=4, blocks=2, taps=4, steps=600,
                    batch_size=16, length=256)}
higher = False


@functools.lru_cache(maxsize=None)
def text():
    """What is trained on, what is tested on."""
    files = [os.environ["TEXT"]] if "TEXT" in os.environ else sorted(
        file for kind in ("*.md", "docs/*.md", "stdlib/**/*.lua",
                          "lang/python/flin/*.py", "examples/**/*.py",
                          "examples/*.lua")
        for file in glob.glob(os.path.join(ROOT, kind), recursive=True))
    seen, unseen = b"", b""
    for file in files:
        with open(file, "rb") as f:
            found = f.read()
        cut = len(found) * 9 // 10
        seen, unseen = seen + found[:cut], unseen + found[cut:]
    return [torch.frombuffer(bytearray(part), dtype=torch.uint8).long()
            for part in (seen, unseen)]


def sizes(a, name):
    return 256, 256


def batch(a, name, draw, rows):
    seen = text()[0].to(draw.device)
    at = torch.randint(len(seen) - a.length - 1, (rows, 1), generator=draw,
                       device=draw.device)
    found = seen[at + torch.arange(a.length + 1, device=draw.device)]
    return found[:, :-1], found[:, 1:]


def scores(a, name, model):
    """Over the unseen, row by row."""
    unseen = text()[1]
    n = (len(unseen) - 1) // a.length
    x = unseen[:n * a.length].view(n, -1)
    label = unseen[1:n * a.length + 1].view(n, -1)
    lost = 0
    for i in range(0, n, 16):
        own = [sweep.same_to_all(model, t[i:i + 16], a.device)
               for t in (x, label)]
        lost += training.losses(model, *own) * own[0][..., 0].numel()
    return {"bits a byte": (lost / (n * a.length) / math.log(2)).tolist()}


if __name__ == "__main__":
    sweep.run("text", sweep.arguments(__doc__, SIZES),
              ["text"])
