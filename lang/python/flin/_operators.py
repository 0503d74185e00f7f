"""flin::forward and flin::backward: what torch.compile and torch.export see of
a call (PyTorch 2.4 on). Eager calls do not go through them."""
from typing import List, Optional, Sequence

import torch
from torch import Tensor

from . import _array, _c
from ._calls import Request, describe, gradient_strides
from ._torch import apart, check_device, no_second, run
from ._variant import VARIANTS, held

Tensors = Sequence[Tensor]
Some = Sequence[Optional[Tensor]]


def call(mode, key, x, s0, given, cu, chunk, scale, norm, **more):
    """s0: the initial states that are given; given: which they are, a bit
    each."""
    v, states = held(key), iter(s0)
    s0 = [next(states) if given >> i & 1 else None
          for i in range(len(v.states) if s0 else 0)]
    if mode == _c.BACKWARD:
        more["want"] = tuple([t is not None for t in [*x, *s0]])
    return run(v._through(scale, norm, x),
               Request(mode, x, s0, cu, chunk, **more))


@torch.library.custom_op("flin::forward", mutates_args=())
def forward(key: str, x: Tensors, s0: Tensors, given: int,
            cu: Optional[Tensor], chunk: int, scale: Optional[float],
            norm: bool, final: bool) -> List[Tensor]:
    return call(_c.FORWARD, key, x, s0, given, cu, chunk, scale, norm,
                final=final)


@torch.library.custom_op("flin::backward", mutates_args=())
def backward(key: str, x: Tensors, s0: Tensors, given: int,
             cu: Optional[Tensor], chunk: int, scale: Optional[float],
             norm: bool, dy: Some, ds: Some) -> List[Tensor]:
    return call(_c.BACKWARD, key, x, s0, given, cu, chunk, scale, norm,
                dy=list(dy), ds=ds)


def leading(a, t):
    """How many axes an argument has before its own."""
    return t.dim() - len(a.axes)


def result_shapes(v, x):
    """Of results and states, behind batch, tokens and heads."""
    one = [_array.Array((1,) * leading(a, t) + tuple(
        int(n) for n in t.shape[leading(a, t):]))
        for a, t in zip(v.inputs, x)]
    caller = v._caller("cpu")
    like = caller.made(
        _array, Request(_c.FORWARD, one, final=True),
        [("input", describe(_array, v.inputs, one)), ("initial", [])], 0,
        False)
    return [shape[len(shape) - len(a.axes):] for (shape, _), a
            in zip(like, [*v.outputs, *v.states])]


def check_devices(v, x, s0, given):
    """That all are where the first is, which tensors without data hide."""
    names = [a.name for a in v.inputs] + [
        a.name for i, a in enumerate(v.states) if given >> i & 1]
    for name, t in zip(names, (*x, *s0)):
        check_device(name, t, names[0], x[0])


@forward.register_fake
def _(key, x, s0, given, cu, chunk, scale, norm, final):
    v = held(key)
    check_devices(v, x, s0, given)
    heads = [t.shape[leading(a, t) - 1] for a, t in zip(v.inputs, x)
             if leading(a, t) == (3 if a.timed else 1)]
    heads = [max(heads)] if heads else []   # a layer's are axes as others
    timed = {a.name: t for a, t in zip(v.inputs, x) if a.timed}
    first = next(iter(timed.values()))
    like = timed.get("v", first)
    exact = any(t.dtype == torch.float64 for t in x)
    n = first.shape[0] if cu is None else cu.shape[0] - 1
    shapes, results = result_shapes(v, x), len(v.outputs)
    o = [like.new_empty((*first.shape[:2], *heads, *y),
                        dtype=torch.float64 if exact else like.dtype)
         for y in shapes[:results]]
    return o + [o[0].new_empty((n, *heads, *s), dtype=torch.float64 if exact
                               else torch.float32)
                for s in shapes[results:] if final]


@backward.register_fake
def _(key, x, s0, given, cu, chunk, scale, norm, dy, ds):
    v = VARIANTS[key]
    check_devices(v, x, s0, given)
    return [t.new_empty_strided(t.shape, gradient_strides(
        a, tuple(t.shape), t.stride())) for a, t in zip(v.inputs, x)] \
        + [t.new_empty(t.shape) for t in s0]


def setup_context(ctx, inputs, output):
    ctx.key, x, s0, ctx.given, cu, *ctx.options, _ = inputs
    ctx.n = len(x)
    ctx.save_for_backward(cu, *x, *s0)


def differentiate(ctx, grads):
    cu, *tensors = ctx.saved_tensors
    dy, ds = apart(VARIANTS[ctx.key], list(grads))
    found = torch.ops.flin.backward(
        ctx.key, tensors[:ctx.n], tensors[ctx.n:], ctx.given, cu,
        *ctx.options, dy, ds)
    return (None, found[:ctx.n], found[ctx.n:]) + (None,) * 6


def setup_refusal(ctx, inputs, output):
    ctx.name = VARIANTS[inputs[0]].name


def refuse(ctx, grads):
    raise no_second(ctx.name)


forward.register_autograd(differentiate, setup_context=setup_context)
backward.register_autograd(refuse, setup_context=setup_refusal)
