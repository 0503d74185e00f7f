"""The text that train_24.py trains on: this project's own, as whole numbers."""
import collections
import glob
import itertools
import os
import re

import torch

HERE = os.path.dirname(os.path.abspath(__file__))


def words_of(path=None):
    """The text, cut into words, numbers and signs."""
    root = os.path.join(HERE, "..")
    files = [path] if path else sorted(itertools.chain.from_iterable(
        glob.glob(os.path.join(root, p), recursive=True) for p in (
            "*.md", "docs/**/*.md", "stdlib/**/*.lua", "lang/**/*.lua",
            "lang/**/*.py", "compiler/**/*.[ch]", "lang/*.[ch]",
            "examples/**/*.*")))
    text = []
    for file in files:
        with open(file, "rb") as f:
            text.append(f.read())
    return re.findall(rb" ?[A-Za-z_]+|[0-9]|\s+|.", b"\n".join(text), re.S)


def tokens_of(words, vocabulary):
    """As whole numbers below `vocabulary`: the 256 bytes, then what is most
    frequent; other words are their bytes."""
    common = [w for w, _ in collections.Counter(words).most_common()
              if len(w) > 1][:max(0, vocabulary - 256)]
    index = {w: 256 + i for i, w in enumerate(common)}
    found = []
    for w in words:
        i = index.get(w)
        if i is None:
            found.extend(w)
        else:
            found.append(i)
    return torch.tensor(found)
