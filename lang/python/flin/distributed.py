"""flin's modules over the ranks of torch.distributed (PyTorch 2.5 on).

DistributedDataParallel and FSDP2 (fully_shard) take flin.nn's modules as they
take others. Calls of variants take DTensors that are cut by batch entries or by
heads (those of a layer by batch entries), and give such."""
from __future__ import annotations

from typing import Any

from torch import nn

from . import Error, _context, _line, _stages
from ._line import gather_price, measure, ring_price    # noqa: F401
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

    def __init__(self, variant: Any, group: Any = None, by: str | None = None,
                 rates: tuple[float, float] | None = None,
                 pieces: int | None = None):
        _stages.stages(variant)
        self.variant, self.line = variant, _line.Line(group, by, rates)
        self.pieces = pieces

    def __call__(self, *args: Any, initial_state: Any = None,
                 output_final_state: bool = False, cu_seqlens: Any = None,
                 lengths: Any = None, scale: float | None = None,
                 use_qk_l2norm_in_kernel: bool = False,
                 chunk: int | None = None, **named: Any) -> tuple[Any, Any]:
        v, line = self.variant, self.line
        x = v._take_inputs(args, named)
        first = v._take_states("initial_state", initial_state) \
            or [None] * len(v.states)
        v = v._through(scale, bool(use_qk_l2norm_in_kernel), x)
        packing = None
        if cu_seqlens is not None:
            t = next(t.shape[1] for a, t in zip(v.inputs, x) if a.timed)
            packing = _context.Packing(cu_seqlens, lengths, line, t)
            first = [packing.own(s) for s in first]
        rows = packing.rows if packing else _context.Rows(None, line.rank > 0)
        found = []
        for each in v._each():          # a pass for each result
            y, *final = _context.call(each, line, rows, chunk_of(chunk), first,
                                      list(x), self.pieces)
            found.append(y)
        if packing and output_final_state:
            final = [packing.spread(s) for s in final]
        return self.variant._give([*found, *final], output_final_state)


def context_parallel(variant: Any, group: Any = None, by: str | None = None,
                     rates: tuple[float, float] | None = None,
                     pieces: int | None = None) -> ContextParallel:
    """The variant, to be called alike by all ranks of the group (None: all
    there are), each with its part of the same sequences, [B, t, H, D], in the
    order of ranks; t may differ. Each gets its part of o, and behind that the
    states after its last token. initial_state: what the sequences start from:
    all ranks give it, and rank 0 has its gradient.

    Backward is to be called by all ranks, too. Gradients of what is the same on
    all ranks, as constants and weights, are each rank's own part of the sum:
    torch.distributed.all_reduce them, or let DistributedDataParallel do it,
    which takes their mean (a loss that is multiplied by the ranks' number makes
    it the sum).

    cu_seqlens: the ends of all packed sequences, from 0 to the tokens of all
    ranks, the same on each (B is 1); parts begin and end wherever they do. They
    are read on the host. `lengths`: how many tokens each rank has, where they
    have not all as many. initial_state has a row for each of all sequences, and
    so has the final one: those that end on this rank are there, others are 0.

    Of several results each takes a pass of its own over the part.

    Any variant whose states are linear in themselves, stage by stage
    (variant.stages of Lua): a matrix, a sum, an angle, a maximum, the token
    before, matrices that need one another. Error, with the term, of others.

    by: what goes round. "gather": what each part does to a state, own and M, to
    all at once, B H K (K + V) numbers a rank in float32, K V + K where entries
    only decay, forward, and B H K V backward. "ring": from rank to rank the
    state itself, B H K V numbers in each direction, one rank after another.
    None: what is predicted to be faster by `rates`, (seconds, bytes a second)
    of a message between two ranks, the same on all of them, as
    flin.distributed.measure gives them (default: 20 us and 100 GB/s, which are
    assumed).

    pieces: in how many a part that is not packed is cut, which run side by side
    on a rank; they are whole chunks. None: as many as are predicted to take
    least on its GPU, on a CPU one."""
    return ContextParallel(variant, group, by, rates, pieces)
