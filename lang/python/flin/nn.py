"""Layers for PyTorch models."""
from __future__ import annotations

import functools
import math
import numbers
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint as run_again

from . import Error, _dtensor, _fla, load, stdlib
from ._variant import Variant

GATE_NORMALIZER = 16            # of log decays, as GLA has it


def _full(x):
    return x if x.dtype == torch.float64 else x.float()


# What a projection yields, brought into an input's domain: for whoever makes
# inputs in PyTorch, as compiler/domains.def draws them elsewhere.
ACTIVATIONS = {
    "normal": lambda x: x,
    "log_decay": lambda x: F.logsigmoid(_full(x)),
    "unit": lambda x: torch.sigmoid(_full(x)),
    "positive": lambda x: F.softplus(_full(x)),
    "unit_norm": lambda x: F.normalize(x, dim=-1),
    "angle": lambda x: math.pi * torch.tanh(_full(x)),
}


# What ACTIVATIONS make of it is x again.
UNDONE = {
    **dict.fromkeys(ACTIVATIONS, lambda x: x),
    "log_decay": lambda x: x - torch.log(-torch.expm1(x)),
    "unit": torch.logit,
    "positive": lambda x: x + torch.log(-torch.expm1(-x)),
    "angle": lambda x: torch.atanh(x / math.pi),
}


def _activated(domain, x):
    x = ACTIVATIONS[domain](x)
    return x / GATE_NORMALIZER if domain == "log_decay" else x


def _undone(domain, x):
    return UNDONE[domain](x * GATE_NORMALIZER if domain == "log_decay" else x)


# Domains of gates. Their projections have a bias, which begins at 0, and of
# what is positive where such steps are as Mamba's begin: at softplus(0) a state
# would forget in a token what it has read.
GATES = "log_decay", "unit", "positive"
STEPS = 1e-3, 1e-1


def _begin_gate(domain, bias):
    nn.init.zeros_(bias)
    if domain == "positive":
        bias.uniform_(*map(math.log, STEPS)).exp_()
        bias.copy_(_undone(domain, bias))


@functools.lru_cache(maxsize=None)
def _whole(name, plan, checkpoint):
    """The layer of that name, one for all modules: it is compiled once."""
    return load("local flin = require 'flin'\n"
                f"return flin.layers.{name}\n", plan, checkpoint)


def _begin(variant, sizes):
    """What the definition says of how constants begin, of PyTorch's seed:
    tensors by name, of no axes where all numbers are the same."""
    seed = int(torch.randint(1, 2 ** 31, ()))
    return {n: torch.tensor(x, dtype=torch.float64)
            for n, x in variant.initial(seed=seed, **sizes).items()}


def _own(p):
    """This rank's part of a parameter whose heads lie over a mesh; one that
    all have gets a part of its gradient from each."""
    if not isinstance(p, _dtensor.class_of()):
        return p
    from torch.distributed.tensor import Partial
    return p.to_local(grad_placements=[
        Partial() if how.is_replicate() else how for how in p.placements])


def _check_axes(who, variant, axes):
    """That the variant has them, and of these sizes."""
    has, name = variant.sizes, variant.name
    for axis, size in axes.items():
        if axis not in has:
            raise Error(f"{who}: {name} has no axis '{axis}'; "
                        f"axes: {', '.join(has)}")
        if has[axis] not in (0, size):
            raise Error(f"{who}: axis {axis} of {name} is {has[axis]}, not "
                        f"{size}")


def _in_pool(v, x, pool, index, cu):
    """y and the pool, in which these sequences' states are changed: a token
    each goes by the step."""
    tokens = next(x[a.name] for a in v.inputs if a.timed).shape[1]
    if tokens == 1 and cu is None:
        return v.step(**x, state=pool, state_index=index)
    return v(**x, initial_state=pool, state_index=index, cu_seqlens=cu)


def _check_pool(who, cp_group, index):
    if index is not None and cp_group is not None:
        raise Error(f"{who}: with cp_group there is no state_index: states of "
                    "parts are the ranks'")


class LinearAttention(nn.Module):
    """A variant as a layer: [B, T, hidden_size] to the same.

        layer = flin.nn.LinearAttention(1024, "gated_deltanet", num_heads=8)
        y, state = layer(x, use_cache=True)
        y, state = layer(x_next, state=state, use_cache=True)

    Each input with tokens is a projection of x, brought into its domain;
    inputs without are parameters, one a head. Behind the variant: RMS norm of
    each head, a SiLU gate, a projection. head_dim is the size of axis k, and
    value_dim (default: the same) that of v; `axes` gives others. Projections to
    log decays, units and positive numbers have a bias, the others with `bias`.
    What the definition lets an input with tokens begin with (its field
    `initial`) is a bias, too, whose weights begin as zeros.

    cp_group: a group of torch.distributed whose ranks have a part each of the
    tokens of x, as flin.distributed.context_parallel has it; all call the layer
    alike. Gradients of parameters are each rank's own part of the sum."""

    def __init__(self, hidden_size: int,
                 variant: str | Variant = "gated_deltanet", num_heads: int = 4,
                 head_dim: int | None = None, value_dim: int | None = None,
                 axes: dict[str, int] | None = None, gate: bool = True,
                 bias: bool = False, eps: float = 1e-5, device: Any = None,
                 dtype: torch.dtype | None = None,
                 cp_group: Any = None) -> None:
        super().__init__()
        make = {"device": device, "dtype": dtype}
        if isinstance(variant, str) and variant in stdlib:
            variant = stdlib[variant]
        self.variant = variant if isinstance(variant, Variant) else \
            load(variant)
        self.num_heads, self.eps = num_heads, eps
        if not isinstance(num_heads, int) or num_heads < 1:
            raise Error(f"LinearAttention: num_heads = {num_heads!r}: how many"
                        " is wanted, 1 or more")
        if not head_dim and hidden_size % num_heads:
            raise Error(f"LinearAttention: hidden_size = {hidden_size} is not "
                        f"shared evenly by num_heads = {num_heads}\n  help: "
                        "head_dim, the size of axis k")
        self.hidden_size = hidden_size
        head_dim = head_dim or hidden_size // num_heads
        self.sizes = {"k": head_dim, "v": value_dim or head_dim}
        self.sizes.update(axes or {})
        _check_axes("LinearAttention", self.variant, axes or {})
        self.projections = nn.ModuleDict()
        self.constants = nn.ParameterDict()
        begin = self.variant.initial()
        for a in self.variant.inputs:
            shape = self.shape(a)
            if a.timed:
                self.projections[a.name] = nn.Linear(
                    hidden_size, math.prod(shape),
                    bias=bias or a.domain in GATES or a.name in begin, **make)
            else:
                self.constants[a.name] = nn.Parameter(
                    torch.empty(shape, **make))
        out = [num_heads] + [self.size(self.variant.output, axis)
                             for axis in self.variant.output.axes]
        self.gate = nn.Linear(hidden_size, math.prod(out), bias=bias,
                              **make) if gate else None
        self.norm = nn.Parameter(torch.empty(out[1:], **make))
        self.out = nn.Linear(math.prod(out), hidden_size, bias=bias, **make)
        self.reset_parameters()
        self.cp_group, self._cut = cp_group, None

    def size(self, a, axis):
        """How long the axis is: as the variant fixes it, as it was given,
        half of a key's for angles and axis p (pairs, which they turn)."""
        half = a.domain == "angle" or axis == "p"
        usual = self.sizes["k"] // (2 if half else 1)
        return self.variant.sizes[axis] or self.sizes.get(axis, usual)

    def shape(self, a):
        """Of the input at one token."""
        return [self.num_heads] + [self.size(a, axis) for axis in a.axes]

    def reset_parameters(self):
        """All begin as the variant's definition says; else constants near 1,
        biases of gates as _begin_gate has it."""
        nn.init.ones_(self.norm)
        with torch.no_grad():
            for a in self.variant.inputs:
                if a.timed and a.domain in GATES:
                    _begin_gate(a.domain, self.projections[a.name].bias)
        axes = {axis: self.size(a, axis) for a in self.variant.inputs
                for axis in a.axes}
        begin = _begin(self.variant, {**axes, "H": self.num_heads})
        with torch.no_grad():
            for a in self.variant.inputs:
                if a.timed and a.name in begin:
                    own = self.projections[a.name]
                    x = _undone(a.domain, begin[a.name])
                    nn.init.zeros_(own.weight)
                    own.bias.copy_(x.expand(self.shape(a)).flatten())
                elif not a.timed and a.name in begin:
                    p, x = self.constants[a.name], begin[a.name]
                    x = x if a.domain == "angle" else _undone(a.domain, x)
                    p.copy_(x.expand_as(p))
                elif not a.timed:
                    self.constants[a.name].normal_(1, 0.1)

    def inputs(self, x):
        """The variant's inputs, by name."""
        found = {}
        for a in self.variant.inputs:
            if a.timed:
                p = self.projections[a.name](x)
                sizes = [self.size(a, axis) for axis in a.axes]
                heads = p.shape[-1] // math.prod(sizes)
                p = p.view(*x.shape[:2], heads, *sizes)
            else:
                p = _own(self.constants[a.name])
            angles = a.domain == "angle" and not a.timed
            found[a.name] = p if angles else _activated(a.domain, p)
        return found

    def forward(self, x: torch.Tensor, state: Any = None,
                use_cache: bool = False, cu_seqlens: Any = None,
                lengths: Any = None, state_index: Any = None,
                ) -> tuple[torch.Tensor, Any]:
        """y, and where use_cache the state behind the last token, which
        goes on as `state`. cu_seqlens: the ends of packed sequences. lengths:
        with cp_group, the tokens of each rank, where they differ. state_index:
        integers [N]: `state` is a pool, [P, ...] of what use_cache gives, of
        which sequence n has entry state_index[n] (-1: nobody's row), read and
        written in place; without gradients. A server's prompts go so in pieces,
        and its tokens (T = 1) by the step."""
        if x.dim() != 3 or x.shape[2] != self.hidden_size:
            raise Error(f"LinearAttention: x has shape {list(x.shape)}, but "
                        f"[B, T, {self.hidden_size}] is wanted")
        _check_pool("LinearAttention", self.cp_group, state_index)
        call, more = self.variant, {}
        if self.cp_group is not None:
            call, more = self.cut(), {"lengths": lengths}
        if state_index is not None:
            o, state = _in_pool(call, self.inputs(x), state, state_index,
                                cu_seqlens)
        else:
            o, state = call(**self.inputs(x), initial_state=state,
                            output_final_state=use_cache,
                            cu_seqlens=cu_seqlens, **more)
        axes = tuple(range(3, o.dim()))
        scale = torch.rsqrt(
            o.float().square().mean(axes, keepdim=True) + self.eps)
        o = o.float() * scale * _own(self.norm)
        o = o.flatten(2)
        if self.gate is not None:
            o = o * F.silu(self.gate(x).float())
        return self.out(o.to(x.dtype)), state

    def cut(self):
        """The variant over the ranks."""
        from .distributed import context_parallel
        if self._cut is None:
            self._cut = context_parallel(self.variant, self.cp_group)
        return self._cut

    def extra_repr(self):
        return f"variant={self.variant.name}, num_heads={self.num_heads}"


class Layer(nn.Module):
    """A layer of flin (flin.layer) as a module: its weights are parameters.

        layer = flin.nn.Layer("kda", d=1024, heads=8)
        y, state = layer(x, use_cache=True)
        y, state = layer(x_next, state=state, use_cache=True)

    `layer` is one of flin.layers, a file, a script's text or what flin.load
    gave. Sizes are those of axes by name; `heads` is that of h; others are as
    the layer's definition says that they usually are (its field `usual`), so
    that Layer("gla", d=1024, heads=4) is as its paper has it. Matrices begin as
    N(0, 1 / fan-in), taps evenly within w^-1/2, vectors as zeros, where the
    layer's definition does not say otherwise (its field `initial`); `initial`
    here gives functions that fill a weight, by its name. plan: as flin.load has
    it, of what that is still to load. checkpoint: what stays between forward
    and backward is the input alone, and backward begins with the way forward;
    the gradients have the same bits. Where weights have a `main_grad`, a
    float32 tensor each, backward adds their gradients to that, in float32
    whatever the weights are, sets `grad_added_to_main_grad` and leaves `grad`
    alone.

    alone: what it gives is y, without a state, as nn.Sequential wants it.

    cp_group: a group of torch.distributed whose ranks have a part each of the
    tokens, in their order; all call the layer, and backward, alike. Gradients
    of weights are each rank's own part of the sum (see
    flin.distributed.context_parallel). The layer runs in its parts then: plan
    counts nothing, and what is added to a main_grad is rounded as the weight
    is."""

    def __init__(self, layer: str | Variant = "gated_deltanet",
                 heads: int | None = None,
                 initial: dict[str, Any] | None = None,
                 device: Any = None, dtype: torch.dtype | None = None,
                 plan: str | None = None, checkpoint: bool = False,
                 cp_group: Any = None, alone: bool = False,
                 **sizes: int) -> None:
        super().__init__()
        if isinstance(layer, Variant) and (plan is not None or checkpoint):
            raise Error(f"Layer: {layer.name} is loaded\n  help: "
                        "flin.load(..., plan=..., checkpoint=...)")
        if isinstance(layer, str) and layer.isidentifier():
            layer = _whole(layer, plan, checkpoint)
        self.layer = layer if isinstance(layer, Variant) else \
            load(layer, plan, checkpoint)
        if not self.layer.is_layer:
            raise Error(f"Layer: {self.layer.name} is a variant, and no layer"
                        "\n  help: flin.nn.LinearAttention(hidden_size, "
                        f"{self.layer.name!r}) puts one around it")
        self.alone = alone
        self.initial = initial or {}
        self.sizes = self.find_sizes(heads, sizes)
        self.timed = [a.name for a in self.layer.inputs if a.timed]
        self.cp_group, self._cut, self._again = cp_group, None, checkpoint
        self.weights = nn.ParameterDict({
            a.name: nn.Parameter(torch.empty(
                [self.sizes[axis] for axis in a.axes], device=device,
                dtype=dtype))
            for a in self.layer.inputs if not a.timed})
        self.reset_parameters()

    def find_sizes(self, heads, sizes):
        """Of all axes."""
        if heads is not None:
            sizes = {**sizes, "h": heads}
        _check_axes("Layer", self.layer, sizes)
        for axis, size in sizes.items():
            whole = isinstance(size, numbers.Integral)
            if not whole or isinstance(size, bool) or size < 1:
                name = "heads" if axis == "h" and heads is not None else axis
                raise Error(f"Layer: {self.layer.name}: {name} is {size!r}: "
                            "how many there are is wanted, 1 or more")
        try:
            return self.layer.usual_sizes(**sizes)
        except Error as e:
            raise Error(f"Layer: {e}".replace("help: h = ", "help: heads = ")
                        .replace(", h = ...", ", heads = ...")) from None

    def fan_in(self, a):
        """What is summed where weight a is multiplied with: the axes of the
        input, or all but those of the result; else the first."""
        ends = {axis for b in (*self.layer.inputs, self.layer.output)
                if b is self.layer.output or b.timed for axis in b.axes}
        first = [axis for axis in a.axes if axis in ends] if \
            a.axes[0] in ends else [axis for axis in a.axes
                                    if axis not in ends] if \
            a.axes[-1] in ends else a.axes[:1]
        return math.prod(self.sizes[axis] for axis in first)

    def reset_parameters(self):
        taps = {a.name for a in self.layer.inputs
                if f", {a.name})" in self.layer.form and a.axes
                and f"conv_{a.name}(" in self.layer.form}
        begin = _begin(self.layer, self.sizes)
        with torch.no_grad():
            for a in self.layer.inputs:
                if a.timed:
                    continue
                p = self.weights[a.name]
                if a.name in self.initial:
                    self.initial[a.name](p)
                elif a.name in begin:
                    p.copy_(begin[a.name].expand_as(p))
                elif a.name in taps:
                    p.uniform_(-1, 1).mul_(self.sizes[a.axes[-1]] ** -0.5)
                elif len(a.axes) > 1:
                    p.normal_(0, self.fan_in(a) ** -0.5)
                else:
                    p.zero_()

    def lay_beside(self) -> "Layer":
        """Moves weights that multiply the same values beside one another,
        where the products are one on a GPU. They stay the parameters that they
        are, but are not contiguous (FSDP2 and safetensors want them to be);
        moving or casting the module undoes it."""
        axes = {a.name: a.axes for a in self.layer.inputs}
        for names, over in self.layer.beside:
            weights = [self.weights[n] for n in names]
            own = [[axis for axis in axes[n] if axis not in over] + over
                   for n in names]
            flat = torch.cat([
                w.detach().permute([axes[n].index(axis) for axis in order])
                .reshape(-1) for n, w, order in zip(names, weights, own)])
            parts = flat.split([w.numel() for w in weights])
            for n, w, order, part in zip(names, weights, own, parts):
                part = part.view([self.sizes[axis] for axis in order])
                w.data = part.permute([order.index(a) for a in axes[n]])
        return self

    def forward(self, *x: torch.Tensor, state: Any = None,
                use_cache: bool = False, cu_seqlens: Any = None,
                lengths: Any = None, state_index: Any = None,
                ) -> Any:
        """y, and where use_cache the state behind the last token, which goes on
        as `state`; y alone, where the layer was made so. x: the inputs with
        tokens, in order. cu_seqlens: the ends of packed sequences. lengths:
        with cp_group, how many tokens each rank has, where they differ.
        state_index: states lie in pools, as LinearAttention has them. Under
        autocast, inputs are cast."""
        given = {"state": state, "state_index": state_index}
        asked = [n for n, what in given.items() if what is not None]
        if self.alone and (asked or use_cache):
            raise Error("Layer: it was made with alone=True, which gives no "
                        "state: " + (asked or ["use_cache"])[0] + " is for one "
                        "that was not")
        y, state = self.called(x, state, use_cache, cu_seqlens, lengths,
                               state_index)
        return y if self.alone else (y, state)

    def called(self, x, state, use_cache, cu_seqlens, lengths, state_index):
        for t in x:
            if not isinstance(t, torch.Tensor):
                raise Error(f"Layer: a tensor is wanted, not {type(t).__name__}"
                            "\n  help: a Layer(..., alone=True) before this "
                            "one gives y without a state")
        kind = x[0].device.type
        if torch.is_autocast_enabled() and kind == "cuda":
            x = [t.to(torch.get_autocast_gpu_dtype()) for t in x]
        _check_pool("Layer", self.cp_group, state_index)
        if state_index is not None:
            return _in_pool(self.layer, {**dict(zip(self.timed, x)),
                                         **self.weights}, state, state_index,
                            cu_seqlens)
        if self.cp_group is not None:
            return self.over_ranks(x, state, use_cache, cu_seqlens, lengths)
        return self.layer(**dict(zip(self.timed, x)), **self.weights,
                          initial_state=state, output_final_state=use_cache,
                          cu_seqlens=cu_seqlens)

    def over_ranks(self, x, *rest):
        """The call where cp_group has the tokens."""
        from . import _layers, _line
        if self._cut is None:
            self._cut = _layers.CutLayer(
                self.layer, _line.Line(self.cp_group), self.sizes)

        def run(*x):
            return self._cut({**dict(zip(self.timed, x)), **self.weights},
                             *rest)
        if self._again and torch.is_grad_enabled():
            return run_again(run, *x, use_reentrant=False)
        return run(*x)

    def load_fla(self, state: dict[str, torch.Tensor]) -> None:
        """Takes the weights of flash-linear-attention's module of this layer,
        from its state dict (GatedLinearAttention, GatedDeltaNet,
        KimiDeltaAttention, Mamba2 with one group, RWKV7Attention with
        layer_idx=0). Error where a name or a shape differs."""
        _fla.load(self.layer.name, self.weights, state)

    def fla_state_dict(self) -> dict[str, torch.Tensor]:
        """Copies of the weights as that module's load_state_dict takes
        them."""
        return _fla.dump(self.layer.name, self.weights)

    def extra_repr(self):
        return f"layer={self.layer.name}, sizes={self.sizes}"


class Stack(nn.Module):
    """Modules one after another: each is called with what the one before gave
    (of a module that gives y and a state, with y).

        stack = flin.nn.Stack(*(flin.nn.RMSNorm(64) for _ in range(24)),
                              checkpoint=4)

    checkpoint=n: of each n modules what stays between forward and backward is
    the input of the first; backward runs these n forward once more, then back.
    The gradients have the same bits. 0: all stays."""

    def __init__(self, *modules: nn.Module, checkpoint: int = 0) -> None:
        super().__init__()
        if not isinstance(checkpoint, int) or checkpoint < 0:
            raise Error(f"Stack: checkpoint = {checkpoint!r}: so many modules "
                        "at a time, from 1 on, or 0")
        self.layers = nn.ModuleList(modules)
        self.checkpoint = checkpoint

    def forward(self, x: torch.Tensor, **named: Any) -> torch.Tensor:
        """named: given to each, as cu_seqlens is."""
        n = self.checkpoint if torch.is_grad_enabled() else 0
        if not n:
            return self.run(list(self.layers), x, named)
        for i in range(0, len(self.layers), n):
            x = run_again(self.run, list(self.layers[i:i + n]), x, named,
                          use_reentrant=False)
        return x

    @staticmethod
    def run(layers, x, named):
        for layer in layers:
            x = layer(x, **named)
            x = x[0] if isinstance(x, tuple) else x
        return x

    def extra_repr(self):
        return f"checkpoint={self.checkpoint}"


@functools.lru_cache(maxsize=None)
def _entropy():
    return load("""local flin = require "flin"
return flin.layer {
  name    = "cross_entropy",
  input   = { z = "t n", label = "t : index n" },
  forward = function (x)
    return flin.logsumexp(x.z, "n") - flin.pick(x.z, x.label, "n")
  end,
}""")


class CrossEntropy(nn.Module):
    """The cross-entropy of logits [..., n] and labels [...] of int64 or int32,
    in one pass over the logits forward and one backward: neither a softmax nor
    a copy in float32 is in memory. Sums are float32's whatever the logits are.

    inplace: the logits are given up, and backward writes their gradient over
    them, with the same bits. Tokens whose label is `ignore_index` count
    nothing; another label that is none of the n is an error on the CPU, and NaN
    on a GPU. reduction: "mean", "sum" or "none"."""

    def __init__(self, inplace: bool = False, ignore_index: int = -100,
                 reduction: str = "mean") -> None:
        super().__init__()
        if reduction not in ("mean", "sum", "none"):
            raise Error(f"CrossEntropy: reduction is {reduction!r}\n  help: "
                        "'mean', 'sum' or 'none'")
        self.inplace, self.ignore_index = inplace, ignore_index
        self.reduction = reduction

    def forward(self, z: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        shape, n = label.shape, z.shape[-1]
        label = label.reshape(1, -1)
        ignored = label == self.ignore_index
        y, _ = _entropy()(z=z.reshape(1, -1, n),
                          label=label.masked_fill(ignored, 0),
                          inplace=("z",) if self.inplace else ())
        return self.reduced(y, ignored, shape)

    def reduced(self, y, ignored, shape):
        y = y.masked_fill(ignored, 0)
        if self.reduction == "none":
            return y.reshape(shape)
        return y.sum() if self.reduction == "sum" \
            else y.sum() / (~ignored).sum()

    def extra_repr(self):
        return (f"inplace={self.inplace}, ignore_index={self.ignore_index}, "
                f"reduction={self.reduction!r}")


@functools.lru_cache(maxsize=None)
def _linear_entropy(memory):
    return load("""local flin = require "flin"
return flin.layer {
  name    = "linear_cross_entropy",
  input   = { x = "t d", label = "t : index n" },
  weight  = { W = "d n" },
  forward = function (x, w)
    local z = flin.dot(x.x, w.W)
    return flin.logsumexp(z, "n") - flin.pick(z, x.label, "n")
  end,
}""", plan="tiles", memory=memory)


class LinearCrossEntropy(CrossEntropy):
    """The cross-entropy of x [..., d] times a head's weight [d, n] (of a
    torch.nn.Linear, `head.weight.t()`) and labels [...]: by tiles of columns,
    or of tokens where those are more, so that the logits are never in memory,
    nor their gradient; the way back makes each tile again. memory: bytes that
    one may take (256 MB, and a quarter of all). ignore_index and reduction as
    CrossEntropy has them."""

    def __init__(self, ignore_index: int = -100, reduction: str = "mean",
                 memory: int | None = None) -> None:
        super().__init__(False, ignore_index, reduction)
        self.memory = memory

    def forward(self, x: torch.Tensor, weight: torch.Tensor,
                label: torch.Tensor) -> torch.Tensor:
        shape = label.shape
        label = label.reshape(1, -1)
        ignored = label == self.ignore_index
        y, _ = _linear_entropy(self.memory)(
            x=x.reshape(1, -1, x.shape[-1]), W=weight,
            label=label.masked_fill(ignored, 0))
        return self.reduced(y, ignored, shape)


@functools.lru_cache(maxsize=None)
def _swiglu():
    return load("""local flin = require "flin"
return flin.layer {
  name    = "swiglu",
  input   = { gate = "t n", up = "t n" },
  forward = function (x) return flin.silu(x.gate) * x.up end,
}""")


class SwiGLU(nn.Module):
    """silu(gate) * up of two [..., n], each read once forward and once
    backward; backward is given these two and dy, and nothing that forward has
    made.

    inplace: gate and up are given up, and backward writes their gradients over
    them, with the same bits. They may be the halves of one tensor; what is
    read later by others is refused."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        if gate.shape != up.shape:
            raise Error(f"SwiGLU: gate has shape {list(gate.shape)}, but up "
                        f"{list(up.shape)}")
        rows = 1, -1, gate.shape[-1]
        y, _ = _swiglu()(gate=gate.reshape(rows), up=up.reshape(rows),
                         inplace=("gate", "up") if self.inplace else ())
        return y.reshape(gate.shape)

    def extra_repr(self):
        return f"inplace={self.inplace}"


@functools.lru_cache(maxsize=None)
def _rms_norm(eps):
    return load(f"""local flin = require "flin"
return flin.layer {{
  name    = "rms_norm",
  input   = {{ x = "t n" }},
  weight  = {{ w = "n" }},
  forward = function (x, w)
    local mean = flin.sum(flin.square(x.x), "n") / flin.size(x.x, "n")
    return x.x * flin.rsqrt(mean + {eps!r}) * w.w
  end,
}}""")


class RMSNorm(nn.Module):
    """x [..., n] by the root of the mean of its squares, times a weight [n].
    Sums are float32's. What forward leaves on a GPU is one number a row, the
    inverse root; made again it has the same bits."""

    def __init__(self, size: int, eps: float = 1e-6, device: Any = None,
                 dtype: torch.dtype | None = None) -> None:
        super().__init__()
        self.eps = float(eps)
        self.weight = nn.Parameter(torch.ones(size, device=device,
                                              dtype=dtype))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y, _ = _rms_norm(self.eps)(x=x.reshape(1, -1, x.shape[-1]),
                                   w=self.weight)
        return y.reshape(x.shape)

    def extra_repr(self):
        return f"{len(self.weight)}, eps={self.eps}"


@functools.lru_cache(maxsize=None)
def _rope(sign=""):
    return load(f"""local flin = require "flin"
return flin.layer {{
  name    = "rope",
  input   = {{ head = "t h k", theta = "t p" }},
  forward = function (x) return flin.rotate(x.head, {sign}x.theta, "k") end,
}}""")


class _Turn(torch.autograd.Function):
    """The gradient of what was turned is turned back: x is not kept."""

    @staticmethod
    def forward(ctx, x, angle, sign):
        ctx.save_for_backward(angle)
        ctx.sign = sign
        return _rope(sign)(head=x, theta=angle)[0]

    @staticmethod
    def backward(ctx, dy):
        angle, = ctx.saved_tensors
        return _Turn.apply(dy, angle, "" if ctx.sign else "-"), None, None


def rotate(x: torch.Tensor, angle: torch.Tensor) -> torch.Tensor:
    """x [B, T, H, D], of which pairs of neighbouring channels are turned by
    angle [B, T, D / 2], each by its own. Where the angles want no gradient,
    nothing of x stays between forward and backward."""
    if angle.requires_grad:
        return _rope()(head=x, theta=angle)[0]
    return _Turn.apply(x, angle, "")


class RoPE(nn.Module):
    """Rotary embedding of x [B, T, H, D], queries' or keys': in each head pairs
    of neighbouring channels are turned by position * base^(-2 i / D), as
    flin.rotate does it; (weights of those who turn halves of a head want their
    columns in another order).

    On a GPU an angle is loaded, and its sine and cosine are made, once for a
    group of up to four heads; each has the bits that it has alone. Angles are
    reduced in float64, so that late positions lose nothing."""

    def __init__(self, base: float = 10000.0) -> None:
        super().__init__()
        self.base, self.made = float(base), (None, None)

    def angles(self, positions: torch.Tensor, dim: int) -> torch.Tensor:
        """Of positions [...], those of each pair: [..., dim / 2] between -pi
        and pi."""
        rate = self.base ** (-torch.arange(
            0, dim, 2, dtype=torch.float64, device=positions.device) / dim)
        angle = positions.double().unsqueeze(-1) * rate
        return torch.remainder(angle + math.pi, 2 * math.pi) - math.pi

    def forward(self, x: torch.Tensor, start: int = 0,
                positions: torch.Tensor | None = None) -> torch.Tensor:
        """positions: [T] or [B, T]; else from `start` on."""
        if x.dim() != 4 or x.shape[3] % 2:
            raise Error(f"RoPE: x has shape {list(x.shape)}, but [B, T, H, D] "
                        "is wanted, of an even D")
        B, T, _, D = x.shape
        wide = torch.float64 if x.dtype == torch.float64 else torch.float32
        key = T, D, start, x.device, wide
        if positions is not None:
            angle = self.angles(positions.to(x.device), D).to(wide)
        elif self.made[0] == key:
            angle = self.made[1]
        else:
            angle = self.angles(torch.arange(start, start + T,
                                             device=x.device), D).to(wide)
            self.made = key, angle
        return rotate(x, angle.expand(B, T, D // 2))

    def extra_repr(self):
        return f"base={self.base}"
