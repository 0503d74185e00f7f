"""flin's side of train_24.py: programs over rows, products with what is beside
them and layers, as PyTorch's functions whose way back is in place where it may
be."""
import contextlib
import functools

import flin
import flin.nn
import torch
from train_24_adamw import lie_on


def as_one(weights):
    """Weights [out, in] that lie one behind another as one; None: they do
    not."""
    first = weights[0]
    if not (all(w.is_contiguous() for w in weights)
            and lie_on(weights, [w.numel() for w in weights])):
        return None
    return first.as_strided((sum(map(len, weights)), first.shape[1]),
                            first.stride(), first.storage_offset())


def side_by_side(dy):
    """[..., n] each as one, without a copy where they lie in the same rows."""
    first, n = dy[0], [d.shape[-1] for d in dy]
    row = sum(n)
    shape = *first.shape[:-1], row
    strides = torch.empty(shape, device="meta").stride()
    if all(d.stride() == strides for d in dy) and lie_on(dy, n):
        return first.as_strided(shape, strides, first.storage_offset())
    return torch.cat(dy, -1)


def lay_beside(parameters):
    """Weights [out, in], one behind another."""
    flat = torch.cat([p.detach() for p in parameters])
    for p, part in zip(parameters, flat.split(list(map(len, parameters)))):
        p.data = part


def times(h, weights):
    """h times each of the weights; in one product, where they lie so."""
    one = as_one(weights)
    if one is not None:
        return Flin.product(h, one).split(list(map(len, weights)), -1)
    return tuple(Flin.product(h, w) for w in weights)


def times_back(dy, weights):
    """The gradient of what the weights were multiplied by."""
    dh = dy[0] @ weights[0]
    for d, w in zip(dy[1:], weights[1:]):
        dh.flatten(0, -2).addmm_(d.flatten(0, -2), w)
    return dh


def weights_back(dy, h):
    """The weights' gradients."""
    h = h.flatten(0, -2)
    return [d.flatten(0, -2).t() @ h for d in dy]


class Products(torch.autograd.Function):
    """f(*x) times weights; f's result is not kept: the way back makes it
    again, with the same bits, and adds up its gradient in the products."""

    @staticmethod
    def forward(ctx, f, n, *tensors):
        ctx.f, ctx.n = f, n
        ctx.save_for_backward(*tensors)
        return times(f(*tensors[:n]), tensors[n:])

    @staticmethod
    def backward(ctx, *dy):
        kept = ctx.saved_tensors        # asked for once: a checkpoint's
        x = [t.detach().requires_grad_() for t in kept[:ctx.n]]
        with torch.enable_grad():
            y = ctx.f(*x)
        dh, dw = times_back(dy, kept[ctx.n:]), weights_back(dy, y.detach())
        return (None, None, *torch.autograd.grad(y, x, dh), *dw)


class Branch(torch.autograd.Function):
    """x, which goes on, and its norm times weights. Between the products of
    the way back is one program: of dh and of what comes back along x it makes
    the norm again, with the same bits, and the gradients of x and w."""

    @staticmethod
    def forward(ctx, x, w, *weights):
        ctx.save_for_backward(x, w, *weights)
        return x.view_as(x), *times(Flin.norm(x, w), weights)

    @staticmethod
    def backward(ctx, dx, *dy):
        return branch_back(*ctx.saved_tensors, past=dx, dy=dy)


def branch_back(x, w, *weights, past, dy):
    """The gradients of x, w and the weights, of what comes along x (past) and
    behind each weight."""
    sizes, one = list(map(len, weights)), as_one(weights)
    if one is not None:
        dy, weights = [side_by_side(dy)], [one]
    d = Flin.loaded("branch").backward(
        x=x, w=w, past=past, dh=times_back(dy, weights), do=Flin.ones(x),
        wanted=("x", "w", "dh"))
    dw = weights_back(dy, d["dh"])
    return d["x"], d["w"], *(dw if one is None else dw[0].split(sizes))


class Gated(torch.autograd.Function):
    """past + silu(gate) * up times a weight; gate and up are given up: one
    program of the way back writes their gradients over them, and the product
    over dh."""

    @staticmethod
    def forward(ctx, past, gate, up, weight):
        ctx.save_for_backward(gate, up, weight)
        return Flin.product_onto(past, Flin.swiglu(gate, up), weight)

    @staticmethod
    def backward(ctx, dy):
        return dy, *gated_back(*ctx.saved_tensors, dy)


class Onto(torch.autograd.Function):
    """past + x times a weight."""

    @staticmethod
    def forward(ctx, past, x, weight):
        ctx.save_for_backward(x, weight)
        return Flin.product_onto(past, x, weight)

    @staticmethod
    def backward(ctx, dy):
        x, weight = ctx.saved_tensors
        return dy, Flin.product_back(dy, weight), *weights_back((dy,), x)


class Along(torch.autograd.Function):
    """y, to which x was added where it was made, as a constant: it is none."""

    @staticmethod
    def forward(ctx, x, y):
        return y.view_as(y)

    @staticmethod
    def backward(ctx, dy):
        return dy, dy


def gated_back(gate, up, weight, dy):
    d = Flin.loaded("gated").backward(
        gate=gate, up=up, dh=Flin.product_back(dy, weight), do=Flin.ones(gate),
        inplace=("gate", "up", "dh"))
    return d["gate"], d["up"], *weights_back((dy,), d["dh"])


class Wide(torch.autograd.Function):
    """x, and beside it a branch and what is gated, of which x alone is kept:
    the way back makes gate and up again, with the same bits."""

    @staticmethod
    def forward(ctx, x, w, gate, up, down):
        ctx.save_for_backward(x, w, gate, up, down)
        wide = times(Flin.norm(x, w), (gate, up))
        return Flin.product_onto(x, Flin.swiglu(*wide), down)

    @staticmethod
    def backward(ctx, dy):
        x, w, gate, up, down = ctx.saved_tensors
        wide = times(Flin.norm(x, w), (gate, up))
        *d, d_down = gated_back(*wide, down, dy)
        return *branch_back(x, w, gate, up, past=dy, dy=d), d_down


def made_again(h, how):
    """Of what is called there h is not kept: the way back makes it again, with
    the same bits."""
    at = h.data_ptr()           # h itself the hooks would keep

    def kept(t):
        return None if t.data_ptr() == at else t

    def found(t):
        return how() if t is None else t
    return torch.autograd.graph.saved_tensors_hooks(kept, found)


class Normed(torch.autograd.Function):
    """x, which goes on, and its norm. Of what comes back along both one
    program makes the gradients of x and w."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x.view_as(x), Flin.norm(x, w)

    @staticmethod
    def backward(ctx, dx, dh):
        x, w = ctx.saved_tensors
        d = Flin.loaded("branch").backward(
            x=x, w=w, past=dx, dh=dh, do=Flin.ones(x), wanted=("x", "w"))
        return d["x"], d["w"]


class Entropy(torch.autograd.Function):
    """The mean cross-entropy of x [N, d] times head [n, d]. Some tokens' logits
    are there at a time: one program makes of them the loss and, over them,
    their gradient, and the products with that follow at once."""
    LOGITS = 64                 # MB at a time, of so many tokens:
    TOKENS = 128                # as a product's tile, or several

    @staticmethod
    def forward(ctx, x, head, label):
        each = (Entropy.LOGITS << 20) // (len(head) * x.element_size())
        each = max(1, each // Entropy.TOKENS) * Entropy.TOKENS
        dx, dw, losses = torch.empty_like(x), None, []
        one = Flin.ones_of((1, len(x)), x.device)
        do = one / len(x)
        for some in torch.arange(len(x)).split(each):
            at = slice(int(some[0]), int(some[-1]) + 1)
            z = Flin.product(x[None, at], head)[0]
            d = Flin.loaded("entropy").backward(
                z=z[None], label=label[None, at], one=one[:, at],
                do=do[:, at], wanted=("z", "one"), inplace=("z",))
            losses.append(d["one"])
            torch.mm(z, head, out=dx[at])
            dw = z.t() @ x[at] if dw is None else dw.addmm_(z.t(), x[at])
            del z, d                    # before the next one is made
        ctx.save_for_backward(dx, dw)
        return torch.cat(losses, 1).sum()

    @staticmethod
    def backward(ctx, d):
        dx, dw = ctx.saved_tensors
        if d.data_ptr() == Flin.ones_of((), d.device).data_ptr():
            return dx.view_as(dx), dw.view_as(dw), None     # a loss by itself
        return Flin.scaled(dx, d), Flin.scaled(dw, d), None


class Flin:
    """flin's."""
    name = "flin"
    plan = "stack"              # of layers of gated DeltaNet

    @staticmethod
    @functools.lru_cache(maxsize=None)
    def loaded(what, plan=None):
        head = 'local flin = require "flin"\n'
        return flin.load(head + {
            "norm": """return flin.layer {
  name = "norm", input = { x = "t d" }, weight = { w = "d" },
  forward = function (x, w) return flin.rms_norm(x.x, "d") * w.w end }""",
            # By 1 for each token, the gradient of what comes back is what goes
            # forward: of dh below the norm, or the gated product.
            "branch": """return flin.layer {
  name = "branch", input = { x = "t d", dh = "t d", past = "t d" },
  weight = { w = "d" },
  forward = function (x, w)
    local h = flin.rms_norm(x.x, "d") * w.w
    return flin.sum(h * x.dh + x.x * x.past, "d")
  end }""",
            "gated": """return flin.layer {
  name = "gated", input = { gate = "t e", up = "t e", dh = "t e" },
  forward = function (x)
    return flin.sum(flin.silu(x.gate) * x.up * x.dh, "e")
  end }""",
            "entropy": """return flin.layer {
  name = "entropy",
  input = { z = "t n", label = "t : index n", one = "t" },
  forward = function (x)
    return (flin.logsumexp(x.z, "n") - flin.pick(x.z, x.label, "n")) * x.one
  end }""",
            "product": """return flin.layer {
  name = "product", input = { x = "t d" }, weight = { w = "n d" },
  forward = function (x, w) return flin.dot(x.x, w.w) end }""",
            "product_onto": """return flin.layer {
  name = "product_onto", input = { x = "t d", past = "t n" },
  weight = { w = "n d" },
  forward = function (x, w) return x.past + flin.dot(x.x, w.w) end }""",
            "product_back": """return flin.layer {
  name = "product_back", input = { y = "t n" }, weight = { w = "n d" },
  forward = function (x, w) return flin.dot(x.y, w.w) end }""",
            "scaled": """return flin.layer {
  name = "scaled", input = { z = "t n", s = "t" },
  forward = function (x)
    return flin.sum(flin.square(x.z), "n") * x.s / 2
  end }""",
            "attention": """return flin.variant {
  name = "attention", normalise = "softmax" }""",
            "delta": """return flin.layer {
  name = "delta", input = { x = "t d", past = "t d" },
  weight = { Wq = "d h k", Wk = "d h k", Wv = "d h v", Wb = "d h", Wa = "d h",
             Wg = "d h v", cq = "h k w", ck = "h k w", cv = "h v w",
             A_log = "h", dt = "h", norm = "v", Wo = "h v d" },
  forward = function (x, w)
    return x.past + flin.layers.gated_deltanet {
      x = x.x, Wq = w.Wq, Wk = w.Wk, Wv = w.Wv, Wb = w.Wb, Wa = w.Wa,
      Wg = w.Wg, cq = w.cq, ck = w.ck, cv = w.cv, A_log = w.A_log, dt = w.dt,
      norm = w.norm, Wo = w.Wo }
  end }"""}[what], plan)

    @staticmethod
    def scaled(z, s):
        """z [N, n] times the number s, in place."""
        s = s.float().expand(1, len(z))
        return Flin.loaded("scaled").backward(
            z=z[None], s=s, do=Flin.ones_of(s.shape, z.device),
            wanted=("z",), inplace=("z",))["z"][0]

    @staticmethod
    def product(x, w):
        """x [B, T, d] times w [n, d]; flin has cuBLASLt choose otherwise than
        PyTorch where what is summed is short."""
        return Flin.loaded("product")(x=x, w=w)[0]

    @staticmethod
    def product_onto(past, x, w):
        return Flin.loaded("product_onto")(x=x, past=past, w=w)[0]

    @staticmethod
    def product_back(y, w):
        return Flin.loaded("product_back")(y=y, w=w)[0]

    @staticmethod
    def norm(x, w):
        return Flin.loaded("norm")(x=x, w=w)[0]

    @staticmethod
    def rotate(x, angle):
        return flin.nn.rotate(x, angle.expand(x.shape[0], *angle.shape))

    @staticmethod
    def attention(q, k, v):
        """v, which is kept, not as columns of what q and k came from."""
        return Flin.loaded("attention")(q, k, v.contiguous())[0]

    @staticmethod
    def delta(norm, x, w, weights):
        layer, own = Flin.loaded("delta", Flin.plan), x.detach()
        if norm is not Flin.norm:
            return Along.apply(x, layer(x=norm(x, w), past=own, **weights)[0])
        x, h = Normed.apply(x, w)
        with made_again(h, lambda: Flin.norm(own, w)) if Flin.plan \
                else contextlib.nullcontext():
            return Along.apply(x, layer(x=h, past=own, **weights)[0])

    @staticmethod
    def swiglu(gate, up):
        return flin.nn.SwiGLU(inplace=True)(gate, up)

    @staticmethod
    @functools.lru_cache(maxsize=None)
    def ones_of(shape, device):
        return torch.ones(shape, device=device)

    @staticmethod
    def ones(x):
        """One for each token of x."""
        return Flin.ones_of(x.shape[:-1], x.device)

    @staticmethod
    def products(past, f, x, weight):
        if f is Flin.swiglu:
            return Gated.apply(past, *x, weight)
        if not f:
            return Onto.apply(past, x, weight)
        return past + Products.apply(f, len(x), *x, weight)[0]

    @staticmethod
    def branch(norm, x, w, weights):
        if norm is Flin.norm:
            return Branch.apply(x, w, *weights)
        return x, *Products.apply(norm, 2, x, w, *weights)

    @staticmethod
    def entropy(x, head, label):
        return Entropy.apply(x, head, label)
