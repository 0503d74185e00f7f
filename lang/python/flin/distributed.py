"""flin's modules over the ranks of torch.distributed (PyTorch 2.5 on).

DistributedDataParallel and FSDP2 (fully_shard) take flin.nn's modules as they
take others. Calls of variants take DTensors that are cut by batch entries or by
heads (those of a layer by batch entries), and give such."""
from __future__ import annotations

from typing import Any

from torch import nn

from . import Error
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
