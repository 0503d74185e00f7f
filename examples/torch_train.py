"""A byte model in PyTorch with layers of flin, trained on a text (default:
flin's README) on the CPU, or on a GPU where there is one.

    python3 examples/torch_train.py [VARIANT [TEXT [STEPS]]]"""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../lang/python"))
try:
    import torch
except ImportError:
    sys.exit("this example wants PyTorch (Debian: python3-torch)")
import flin                                         # noqa: E402
import flin.nn                                      # noqa: E402
from torch import nn                                # noqa: E402

variant, path, steps = (sys.argv[1:] + ["gated_deltanet", os.path.join(
    HERE, "../README.md"), "60"][len(sys.argv) - 1:])[:3]
device = "cuda" if torch.cuda.is_available() else "cpu"
WIDTH, LENGTH, BATCH = 64, 128, 8


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.mix = flin.nn.LinearAttention(WIDTH, variant, num_heads=2)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.SiLU(),
                                 nn.Linear(2 * WIDTH, WIDTH))

    def forward(self, x):
        x = x + self.mix(self.norm(x))[0]
        return x + self.mlp(self.norm2(x))


torch.manual_seed(0)
model = nn.Sequential(nn.Embedding(256, WIDTH), Block(), Block(),
                      nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 256)).to(device)
with open(path, "rb") as f:
    text = torch.tensor(list(f.read()), device=device)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(int(steps)):
    at = torch.randint(len(text) - LENGTH - 1, (BATCH,)).tolist()
    rows = torch.stack([text[i:i + LENGTH + 1] for i in at])
    loss = nn.functional.cross_entropy(
        model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0 or step == int(steps) - 1:
        print(f"step {step:4}  {loss.item() / 0.6931:.2f} bits a byte")
