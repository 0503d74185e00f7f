"""Variants and layers over the ranks of a mesh: four processes, the results of
one. DTensors, tensor parallelism by heads, FSDP2, checkpoints that other
numbers of ranks take up, a rank that dies. With --nccl two processes, each on
its GPU.

    python3 tests/python/torch_mesh.py [--nccl] [PARTS] [VARIANTS]

these alone: of variants, other_cuts, refusals, layers, heads, shards, dying;
and of the standard library."""
import importlib.metadata
import importlib.util
import json
import os
import sys
import tempfile
import time
from datetime import timedelta

import harness
from harness import (CARDS, backend, check, close, drawn, end, flin, here,
                     refused, shapes)

if not importlib.util.find_spec("torch"):
    print("skip no PyTorch for", sys.executable)
    sys.exit()
VERSION = importlib.metadata.version("torch")
if tuple(int(n) for n in VERSION.split(".")[:2]) < (2, 6):
    print("skip PyTorch", VERSION, "has no fully_shard")
    sys.exit()
import torch                                        # noqa: E402
import torch.distributed as dist                    # noqa: E402
import torch.distributed.checkpoint as saved        # noqa: E402
import torch.multiprocessing as processes           # noqa: E402
from torch.distributed.checkpoint.state_dict import (   # noqa: E402
    get_state_dict, set_state_dict)
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.fsdp import fully_shard      # noqa: E402
from torch.distributed.tensor import (              # noqa: E402
    Replicate, Shard, distribute_tensor)

PARTS = ("variants", "other_cuts", "refusals", "layers", "heads", "shards",
         "dying")
WORDS = [w for w in sys.argv[1:] if w != "--nccl"]
ASKED = [p for p in PARTS if p in WORDS] or list(PARTS)
NAMES = [n for n in flin.stdlib if n in WORDS] or list(flin.stdlib)
RANKS = 2 if CARDS else 4
DEVICE = "cuda" if CARDS else "cpu"
SHAPES = [(2, 1), (1, 2)] if CARDS else [(2, 2)]        # of meshes


def inputs(variant, B=4, T=20, H=4):
    torch.manual_seed(3)
    return {n: drawn(shape, domain)
            .requires_grad_() for n, (shape, domain)
            in shapes(variant, B, T, H).items()}


def whole(t):
    return t.full_tensor() if hasattr(t, "full_tensor") else t


def listed(states):
    """The final states: a tensor, or a dict of them."""
    return list(states.values()) if isinstance(states, dict) else [states]


def loss(y, states):
    return sum((t * t).sum() for t in [y, *listed(states)])


# ---- DTensors ----


def over(mesh, variant, x, dp, tp):
    """The inputs over a mesh of two dimensions: cut as these say."""
    at = {}
    for a in variant.inputs:
        cuts = {"batch": Shard(0) if a.timed else Replicate(),
                "heads": Shard(2 if a.timed else 0), "": Replicate()}
        at[a.name] = distribute_tensor(
            here(x[a.name].detach()), mesh,
            [cuts[dp], cuts[tp]]).requires_grad_()
    return at


def wanted(v):
    """Inputs of it, with gradients, and its results."""
    x = inputs(v)
    y, states = v(**x, output_final_state=True)
    loss(y, states).backward()
    return x, y.detach(), listed(states)


def variants(mesh):
    for name, (x, y, states) in WANTED.items():
        v = flin.stdlib[name]
        z = over(mesh, v, x, "batch", "heads")
        w, ends = v(**z, output_final_state=True)
        loss(w, ends).backward()
        close(f"{name}: y", whole(w), y, 1e-6)
        for a, b in zip(listed(ends), states):
            close(f"{name}: state", whole(a), b, 1e-6)
        for n, t in x.items():
            close(f"{name}: d_{n}", whole(z[n].grad), t.grad, 1e-5)


def other_cuts(mesh):
    gla = flin.stdlib["gla"]
    x = inputs(gla)
    y, state = gla(**x, output_final_state=True)
    for dp, tp in ("heads", "heads"), ("", "batch"), ("", ""):
        if dp == tp == "heads":
            z, end = gla(**over(mesh, gla, x, dp, tp),
                         output_final_state=True)
            close("four parts of heads", whole(end), state, 1e-6)
        else:
            z, _ = gla(**over(mesh, gla, x, dp, tp))
        close(f"cut by {dp} and {tp}", whole(z), y, 1e-6)
    one = {**x, "q": x["q"][:, :, :1]}      # shared by all heads
    want = gla(**one)[0]
    cut = over(mesh, gla, x, "", "heads")
    cut["q"] = distribute_tensor(here(one["q"].detach()), mesh,
                                 [Replicate()] * 2)
    cut["q"].requires_grad_()
    got = gla(**cut)[0]
    close("a query of all heads", whole(got), want, 1e-6)
    loss(got, 0 * got).backward()
    close("and its gradient", whole(cut["q"].grad),
          torch.autograd.grad(loss(want, 0 * want), one["q"])[0], 1e-5)
    token = {n: t[:, :1] for n, t in x.items()}
    want, left = gla.step(**token, state=state.detach())
    cut = distribute_tensor(here(state.detach()).contiguous(), mesh,
                            [Shard(0), Shard(1)])
    got, there = gla.step(**over(mesh, gla, token, "batch", "heads"),
                          state=cut)
    close("a step's y", whole(got), want, 1e-6)
    close("its state", whole(there), left, 1e-6)


def refusals(mesh):
    gla = flin.stdlib["gla"]
    x = over(mesh, gla, inputs(gla), "batch", "heads")

    def bad(text, **more):
        refused(text, flin.Error, text, gla, **{**x, **more})
    plain = {n: here(t.detach()) for n, t in inputs(gla).items()}
    bad("k is a plain tensor, but q lies on a mesh", k=plain["k"])
    bad("on the mesh: gla runs on whole tokens",
        q=distribute_tensor(plain["q"].detach(), mesh, [Shard(0), Shard(1)]))
    bad("others are cut by heads", v=distribute_tensor(
        plain["v"].detach(), mesh, [Shard(0), Replicate()]))
    odd = inputs(gla, B=4, H=3)
    if mesh.size(1) == 1:
        return
    refused("heads that ranks do not share", flin.Error,
            "3 heads are not shared evenly by 2 ranks",
            gla, **over(mesh, gla, odd, "batch", "heads"))
    layer, x = map(here, whole_layer())
    at = {n: distribute_tensor(p.detach(), mesh, [Replicate()] * 2)
          for n, p in layer.weights.items()}
    at["Wq"] = distribute_tensor(layer.weights["Wq"].detach(), mesh,
                                 [Replicate(), Shard(1)])
    refused("a layer's weight cut by heads", flin.Error, "Wq is", layer.layer,
            x=distribute_tensor(x, mesh, [Shard(0), Replicate()]), **at)


def whole_layer():
    torch.manual_seed(5)
    return (flin.nn.Layer("gla", d=16, heads=4, k=4, v=4, r=4),
            torch.randn(4, 20, 16))


def mixer():
    torch.manual_seed(7)
    return (flin.nn.LinearAttention(16, "mamba2", num_heads=4),
            torch.randn(4, 20, 16))


def layers(mesh):
    layer, x = whole_layer()
    y, _ = layer.layer(x=x, **layer.weights)
    loss(y, 0 * y).backward()
    at = {n: distribute_tensor(here(p.detach()), mesh, [Replicate()] * 2)
          .requires_grad_() for n, p in layer.weights.items()}
    z, _ = layer.layer(x=distribute_tensor(here(x), mesh,
                                           [Shard(0), Replicate()]), **at)
    loss(z, 0 * z).backward()
    close("layer: y", whole(z), y, 1e-6)
    for n, p in layer.weights.items():
        close(f"layer: d_{n}", whole(at[n].grad), p.grad, 1e-5)


# ---- modules ----


def heads(mesh):
    layer, x = mixer()
    y = layer(x)[0]
    loss(y, 0 * y).backward()
    other = flin.distributed.tensor_parallel(here(mixer()[0]), mesh)
    z = other(here(x))[0]
    loss(z, 0 * z).backward()
    close("heads: y", z, y, 1e-6)
    found = dict(other.named_parameters())
    for n, p in layer.named_parameters():
        close(f"heads: d_{n}", whole(found[n].grad), p.grad, 1e-4)
    refused("heads that ranks do not share", flin.Error, "3 heads",
            flin.distributed.tensor_parallel,
            here(flin.nn.LinearAttention(12, "gla", num_heads=3)),
            mesh)
    refused("a layer's heads", flin.Error, "Layer has no heads",
            flin.distributed.tensor_parallel, whole_layer()[0], mesh)


def trained(model, x, optimiser, steps):
    """The loss is a mean over batch entries, as that over ranks is."""
    for _ in range(steps):
        model(x)[0].square().mean().backward()
        optimiser.step()
        optimiser.zero_grad()


def sharded(make, mesh):
    """The module over the ranks, its optimiser, and their part of x."""
    model, x = map(here, make())
    fully_shard(model, mesh=mesh)
    n = x.shape[0] // mesh.size()
    at = mesh.get_local_rank() * n
    return model, torch.optim.AdamW(model.parameters(), 1e-2), x[at:at + n]


def shards(mesh, folder):
    """FSDP2, and what it keeps."""
    for make in mixer, whole_layer:
        model, x = make()
        trained(model, x, torch.optim.AdamW(model.parameters(), 1e-2), 2)
        other, optimiser, part = sharded(make, mesh)
        trained(other, part, optimiser, 2)
        found = dict(other.named_parameters())
        for n, p in model.named_parameters():
            close(f"FSDP2, {type(model).__name__}: {n}", whole(found[n]), p,
                  2e-4)
    of_model, of_optimiser = get_state_dict(other, optimiser)
    saved.save({"model": of_model, "optimiser": of_optimiser},
               checkpoint_id=folder + "/kept")
    trained(other, part, optimiser, 1)
    kept = {n: whole(p).detach().cpu() for n, p in other.named_parameters()}
    if dist.get_rank() == 0:
        torch.save(kept, folder + "/after")
    dist.barrier()


def fewer(mesh, folder):
    """What all ranks kept goes on on half as many."""
    other, optimiser, part = sharded(whole_layer, mesh)
    of_model, of_optimiser = get_state_dict(other, optimiser)
    state = {"model": of_model, "optimiser": of_optimiser}
    saved.load(state, checkpoint_id=folder + "/kept")
    set_state_dict(other, optimiser, model_state_dict=state["model"],
                   optim_state_dict=state["optimiser"])
    trained(other, part, optimiser, 1)
    after = torch.load(folder + "/after")
    for n, p in other.named_parameters():
        close(f"from {RANKS} ranks to {RANKS // 2}: {n}", whole(p), after[n],
              2e-4)


def all_of_it(folder):
    for shape in SHAPES:
        mesh = init_device_mesh(DEVICE, shape, mesh_dim_names=("dp", "tp"))
        for part in variants, other_cuts, refusals, layers:
            if part.__name__ in ASKED:
                part(mesh)
    line = init_device_mesh(DEVICE, (RANKS,))
    if "heads" in ASKED:
        heads(line)
    if "shards" in ASKED:
        shards(line, folder)


def half(folder):
    fewer(init_device_mesh(DEVICE, (RANKS // 2,)), folder)


def dying(folder):
    """The last rank goes: the others hear of it from torch.distributed."""
    layer, x = map(here, mixer())
    model = torch.nn.parallel.DistributedDataParallel(layer)
    y = model(x)[0]                     # what is compiled is there then
    loss(y, 0 * y).backward()
    if dist.get_rank() == RANKS - 1:
        os._exit(0)
    start = time.monotonic()
    try:
        y = model(x)[0]
        loss(y, 0 * y).backward()
        dist.barrier()
        float(y.sum())
    except RuntimeError as e:
        check("torch.distributed's error", "flin" not in str(e), str(e))
    else:
        check("a rank that died", False, "nobody noticed")
    check("soon", time.monotonic() - start < 30)
    leave(folder)


def leave(folder):
    with open(f"{folder}/{dist.get_rank()}", "w") as f:
        json.dump([harness.passed, harness.failed], f)
    sys.stdout.flush()
    os._exit(0)         # whatever the others do


def work(rank, ranks, what, folder):
    torch.set_num_threads(1)
    if what == "all_of_it" and CARDS:
        want()                      # CUDA cannot go on behind a fork
    if what == "dying":                 # NCCL's errors, to those who wait
        os.environ["TORCH_NCCL_BLOCKING_WAIT"] = "1"
    dist.init_process_group(
        backend(rank), rank=rank, world_size=ranks,
        init_method=f"file://{folder}/store.{what}",
        timeout=timedelta(seconds=15 if what == "dying" else 60))
    globals()[what](folder)
    dist.barrier()
    leave(folder)


def want():
    global WANTED
    WANTED = {n: wanted(flin.stdlib[n]) for n in NAMES if "variants" in ASKED}


def ran(what, ranks, folder, left=0):
    """The checks of all ranks; so many of them leave none."""
    processes.start_processes(work, (ranks, what, folder), nprocs=ranks,
                              start_method="spawn" if CARDS else "fork")
    for rank in range(ranks - left):
        try:
            with open(f"{folder}/{rank}") as f:
                passed, failed = json.load(f)
        except OSError:
            passed, failed = 0, 1
            print(f"not ok {what}: rank {rank} has ended early")
        else:
            os.remove(f"{folder}/{rank}")
        harness.passed += passed
        harness.failed += failed


if __name__ == "__main__":
    if not dist.is_available() or not CARDS and not dist.is_gloo_available():
        print("skip this PyTorch has no gloo")
        sys.exit()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    if not CARDS:
        want()
    with tempfile.TemporaryDirectory() as folder:
        if ASKED != ["dying"]:
            ran("all_of_it", RANKS, folder)
        if "shards" in ASKED:
            ran("half", RANKS // 2, folder)
        if "dying" in ASKED:
            ran("dying", RANKS, folder, left=1)
    end()
