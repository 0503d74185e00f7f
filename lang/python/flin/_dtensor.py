"""Tensors that lie over the ranks of a mesh (DTensor, PyTorch 2.5 on): batch
entries and heads do not see each other, so each rank runs its own part."""
import sys

from . import _c


def class_of():
    """DTensor, where anything has loaded it, else no class."""
    return getattr(sys.modules.get("torch.distributed.tensor"), "DTensor", ())


class Argument:
    """A tensor of a call, and which of its dimensions may be cut."""

    def __init__(self, name, tensor, batch, heads):
        self.name, self.tensor = name, tensor
        self.cuts = {"batch entries": batch, "heads": heads}


def arguments(variant, x, s0):
    whole = variant.is_layer        # whose heads are an axis as others
    found = [Argument(a.name, t, *((0, 2) if a.timed else (None, 0)))
             for a, t in zip(variant.inputs, x)]
    found += [Argument(f"initial_state {a.name}", t, 0, 1)
              for a, t in zip(variant.states, s0) if t is not None]
    for a in found if whole else ():
        a.cuts["heads"] = None
    return found


def refuse(a, placement, why):
    raise _c.Error(f"{a.name} is {placement} on the mesh: {why}")


def cut_of(variant, arguments, i):
    """What mesh dimension i cuts: batch entries, heads or (None) nothing."""
    found = None
    for a in arguments:
        placement = a.tensor.placements[i]
        if placement.is_replicate():
            continue
        what = [what for what, dim in a.cuts.items()
                if dim is not None and placement.is_shard(dim)]
        if not what:
            ways = ", ".join(f"Shard({dim}) for {what}"
                             for what, dim in a.cuts.items()
                             if dim is not None) or "Replicate()"
            refuse(a, placement, f"{variant.name} runs on whole tokens\n"
                   f"  help: .redistribute(placements=[...]), with {ways}")
        if found not in (None, what[0]):
            refuse(a, placement, f"others are cut by {found}")
        found = what[0]
    return found


def check_cut(variant, a, cut, i, mesh):
    """The gradient's placement there; error where its part is not a call's."""
    from torch.distributed.tensor import Partial
    placement, dim = a.tensor.placements[i], a.cuts[cut]
    if dim is None or cut == "heads" and a.tensor.shape[dim] == 1:
        if not placement.is_replicate():
            refuse(a, placement, "there is nothing to cut\n  help: "
                   ".redistribute(placements=[Replicate()])")
        return Partial()
    if placement.is_replicate():
        refuse(a, placement, f"others are cut by {cut}\n  help: .redistribute("
               f"placements=[Shard({dim})])")
    ranks = 1
    for j, other in enumerate(a.tensor.placements):
        ranks *= mesh.size(j) if other.is_shard(dim) else 1
    if a.tensor.shape[dim] % ranks:
        refuse(a, placement, f"{a.tensor.shape[dim]} {cut} are not shared "
               f"evenly by {ranks} ranks")
    return placement


def own_parts(variant, x, s0):
    """This rank's parts of the inputs and initial states, whose gradients go
    back where they come from; and what makes results DTensors again."""
    from torch.distributed.tensor import DTensor, Replicate, Shard
    every = arguments(variant, x, s0)
    first = next(a for a in every if isinstance(a.tensor, DTensor))
    mesh = first.tensor.device_mesh
    for a in every:
        if not isinstance(a.tensor, DTensor):
            raise _c.Error(f"{a.name} is a plain tensor, but {first.name} lies"
                           f" on a mesh\n  help: distribute_tensor({a.name}, "
                           "mesh, placements)")
        if a.tensor.device_mesh != mesh:
            raise _c.Error(f"{a.name} lies on another mesh than {first.name}")
    cuts = [cut_of(variant, every, i) for i in range(mesh.ndim)]
    parts = {}
    for a in every:
        gradient = [check_cut(variant, a, cut, i, mesh) if cut else Replicate()
                    for i, cut in enumerate(cuts)]
        parts[id(a)] = a.tensor.to_local(grad_placements=gradient)
    own = iter(parts[id(a)] for a in every)
    x = [next(own) for _ in x]
    s0 = [s if s is None else next(own) for s in s0]

    def spread(*found):
        n = len(variant.outputs)
        def over(t, heads):
            at = {None: Replicate(), "batch entries": Shard(0),
                  "heads": Shard(heads)}
            return DTensor.from_local(t, mesh, [at[cut] for cut in cuts],
                                      run_check=False)
        return [*(over(y, 2) for y in found[:n]),
                *(over(s, 1) for s in found[n:])]
    return x, s0, spread
