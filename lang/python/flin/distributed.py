"""flin's modules over the ranks of torch.distributed (PyTorch 2.5 on).

DistributedDataParallel and FSDP2 (fully_shard) take flin.nn's modules as they
take others. Calls of variants take DTensors that are cut by batch entries or by
heads (those of a layer by batch entries), and give such."""
from __future__ import annotations

from typing import Any

from torch import nn

from . import Error, _context, _state
from ._variant import chunk_of
from .nn import LinearAttention


def tensor_parallel(layer: LinearAttention, mesh: Any) -> LinearAttention:
    """The same layer, its heads over the ranks of `mesh`, a DeviceMesh of one
    dimension: each has as many. x, y and their gradients are whole on each
    rank; the parameters become DTensors: projections, gate and constants are
    cut by heads, and so are the rows of the last product, behind which one sum
    goes over all ranks. States hold the rank's own heads. What a loss takes of
    y is the same on all ranks. Error where the heads are not shared evenly."""
    from torch.distributed.tensor import (Replicate, Shard, distribute_tensor)
    from torch.distributed.tensor.parallel import (
        ColwiseParallel, RowwiseParallel, parallelize_module)
    if not isinstance(layer, LinearAttention):
        raise Error(f"tensor_parallel: {type(layer).__name__} has no heads "
                    "that it knows of: flin.nn.LinearAttention is wanted")
    if mesh.ndim != 1:
        raise Error(f"tensor_parallel: the mesh has {mesh.ndim} dimensions\n"
                    "  help: mesh[\"tp\"], one of them")
    if layer.num_heads % mesh.size():
        raise Error(f"tensor_parallel: {layer.num_heads} heads are not shared "
                    f"evenly by {mesh.size()} ranks")
    plan = {f"projections.{n}": ColwiseParallel() for n in layer.projections}
    if layer.gate is not None:
        plan["gate"] = ColwiseParallel()
    parallelize_module(layer, mesh, {**plan, "out": RowwiseParallel()})

    def spread(p, how):
        return nn.Parameter(distribute_tensor(p.data, mesh, [how]),
                            p.requires_grad)
    for n, p in layer.constants.items():
        layer.constants[n] = spread(p, Shard(0))
    layer.norm = spread(layer.norm, Replicate())
    return layer


class ContextParallel:
    """A variant called on parts of sequences; see context_parallel."""

    def __init__(self, variant: Any, group: Any = None):
        _state.transition(variant._caller(_state.cpu()).handle)
        if len(variant.outputs) > 1:
            raise Error(f"{variant.name}: it has several results: parts of "
                        "sequences give y alone")
        self.variant, self.group = variant, group

    def __call__(self, *args: Any, initial_state: Any = None,
                 output_final_state: bool = False,
                 scale: float | None = None,
                 use_qk_l2norm_in_kernel: bool = False,
                 chunk: int | None = None, **named: Any) -> tuple[Any, Any]:
        v = self.variant
        x = v._take_inputs(args, named)
        first, = v._take_states("initial_state", initial_state) or [None]
        v = v._through(scale, bool(use_qk_l2norm_in_kernel), x)
        y, final = _context.call(v, self.group, chunk_of(chunk), first,
                                 list(x))
        return y, final if output_final_state else None


def context_parallel(variant: Any, group: Any = None) -> ContextParallel:
    """The variant, to be called alike by all ranks of the group (None: all
    there are), each with its part of the same sequences, [B, t, H, D], in the
    order of ranks; t may differ. Each gets its part of o, and behind that the
    state after its last token. initial_state: what the sequences start from, of
    rank 0. What goes round, once forward and once backward, is B H K (K + V)
    and B H K V numbers a rank in float32, K V less where entries only decay.
    Backward is to be called by all ranks, too; gradients of what is the same on
    all ranks, as constants, are each rank's own part of the sum. Error, with
    the reason, where a token does not act on the state by a matrix."""
    return ContextParallel(variant, group)
