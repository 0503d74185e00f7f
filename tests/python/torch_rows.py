"""Programs over rows through PyTorch: cross-entropy, labels, in place."""
import importlib.util
import sys

from harness import check, close, end, flin, refused, same

if not importlib.util.find_spec("torch"):
    print("skip no PyTorch for", sys.executable)
    sys.exit()
import torch                                        # noqa: E402
import torch.nn.functional as F                     # noqa: E402
import flin.nn                                      # noqa: E402

torch.set_num_threads(1)
torch.manual_seed(3)

for n in 2, 7, 33, 32000:
    z = (2 * torch.randn(2, 5, n)).requires_grad_()
    label = torch.randint(n, (2, 5))
    label[0, 1] = -100
    flin.nn.CrossEntropy()(z, label).backward()
    mine, z.grad = z.grad, None
    F.cross_entropy(z.view(-1, n), label.view(-1)).backward()
    close(f"gradient of {n}", mine, z.grad, 1e-5)
    for reduction in "mean", "sum", "none":
        y = flin.nn.CrossEntropy(reduction=reduction)(z, label)
        true = F.cross_entropy(z.view(-1, n), label.view(-1),
                               reduction=reduction)
        close(f"{reduction} of {n}", y.reshape(true.shape), true,
              1e-6)
    over = (z.detach() * 1).requires_grad_()
    logits = over * 1
    flin.nn.CrossEntropy(inplace=True)(logits, label).backward()
    same(f"in place, {n}", over.grad, mine)
    same(f"in place, {n}: over the logits", logits.detach(), mine)

x = torch.randn(2, 9, 12, requires_grad=True)
w = torch.randn(12, 5000, requires_grad=True)
label = torch.randint(5000, (2, 9))
label[1, 2] = -100
flin.nn.LinearCrossEntropy()(x, w, label).backward()
mine = x.grad, w.grad
x.grad = w.grad = None
loss = F.cross_entropy((x @ w).view(-1, 5000), label.view(-1))
close("the head, too", flin.nn.LinearCrossEntropy()(x, w, label), loss, 1e-6)
loss.backward()
close("the head, too: hidden states", mine[0], x.grad, 1e-5)
close("the head, too: weight", mine[1], w.grad, 1e-5)

z = torch.randn(3, 40, requires_grad=True)
label = torch.tensor([0, 39, 5])
y = flin.nn.CrossEntropy(reduction="none")(z.bfloat16(), label)
check("a loss is float32", y.dtype == torch.float32, y.dtype)
close("bfloat16", y, F.cross_entropy(z.bfloat16().float(), label,
                                     reduction="none"), 1e-6)
same("int32", flin.nn.CrossEntropy()(z, label.int()),
     flin.nn.CrossEntropy()(z, label))
logits = z * 1
late = logits.square()      # which reads the logits on its way back
loss = flin.nn.CrossEntropy(inplace=True)(logits, label)
refused("a later reader of what is written over", RuntimeError,
        "modified by an inplace operation",
        lambda: (late.sum() + loss).backward()
        if loss.backward(retain_graph=True) is None else None)
refused("no such label", ValueError, "label is 40 at token 1",
        flin.nn.CrossEntropy(), z, torch.tensor([0, 40, 5]))
refused("labels that are no numbers of entries", ValueError,
        "is declared an index of axis 'n'", flin.nn.CrossEntropy(), z,
        label.float())
gdn = flin.load("gated_deltanet")
refused("in place, of a variant", ValueError, "there is no input 'q' of a "
        "layer", gdn, *torch.randn(3, 1, 4, 2, 8), inplace=("q",),
        g=torch.zeros(1, 4, 2), beta=torch.zeros(1, 4, 2))
refused("whole numbers for keys", ValueError, "k is int64", gdn,
        torch.randn(1, 4, 2, 8), torch.ones(1, 4, 2, 8).long(),
        torch.randn(1, 4, 2, 8), g=torch.zeros(1, 4, 2),
        beta=torch.zeros(1, 4, 2))
end()
