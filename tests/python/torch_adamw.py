"""The optimiser of examples/train_24.py beside PyTorch's: weights alone, beside
one another, permuted and small."""
import importlib.util
import os
import sys

from harness import check, close, end

if not importlib.util.find_spec("torch"):
    print("skip no PyTorch for", sys.executable)
    sys.exit()
import torch                                        # noqa: E402

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "../../examples"))
import train_24_adamw as own                        # noqa: E402

torch.set_num_threads(1)
torch.manual_seed(2)
own.SMALL = 1 << 10

first, second = torch.randn(70, 96).split([30, 40])
data = [torch.randn(64), torch.randn(130, 96), torch.randn(3, 5), first, second,
        torch.randn(8, 16, 24).permute(2, 0, 1)]
mine = [torch.nn.Parameter(x) for x in data]
theirs = [torch.nn.Parameter(x.clone()) for x in data]
for p, x in zip(mine, data):
    p.data = x
optimiser = own.AdamW(mine)
other = torch.optim.AdamW(theirs, lr=1e-2, betas=(own.FIRST, own.SECOND),
                          weight_decay=own.DECAY)
check("runs", sorted(len(run) for run, *_ in optimiser.kept) == [1, 1, 2, 2])
for size in 1e-4, 1e-3, 1e-1:
    for p, q in zip(mine, theirs):
        g = torch.randn(p.shape) * size
        p.grad, q.grad = torch.empty_like(p).copy_(g), g
    given = [p.grad.clone() for p in mine]
    norm = torch.nn.utils.clip_grad_norm_(theirs, 1)
    other.step()
    optimiser.begin(1e-2)
    close("the norm", optimiser.step(), norm, 1e-6)
    for p, q, g in zip(mine, theirs, given):
        close("weights", p, q, 1e-6)
        check("gradients are read alone", torch.equal(p.grad, g))
check("in place", first.data_ptr() == mine[3].data_ptr())
end()
