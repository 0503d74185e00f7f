"""A sequence whose parts lie on ranks, each variant's that has a transition:
three processes, the results and gradients of one."""
import importlib.util
import json
import os
import sys
import tempfile

import harness
from harness import check, close, end, flin, refused, shapes

if not importlib.util.find_spec("torch"):
    print("skip no PyTorch for", sys.executable)
    sys.exit()
import torch                                        # noqa: E402
import torch.distributed as dist                    # noqa: E402
import torch.multiprocessing as processes           # noqa: E402

from flin.distributed import context_parallel       # noqa: E402

ENDS = 0, 70, 75, 139           # of the ranks' parts
DOMAIN = {"log_decay": torch.nn.functional.logsigmoid, "unit": torch.sigmoid,
          "positive": torch.nn.functional.softplus,
          "unit_norm": lambda x: torch.nn.functional.normalize(x, dim=-1)}


def inputs(variant):
    torch.manual_seed(3)
    return {n: DOMAIN.get(domain, lambda x: x)(torch.randn(shape))
            .requires_grad_() for n, (shape, domain)
            in shapes(variant, 2, ENDS[-1], 2).items()}


def has_transition(variant):
    x, timed = inputs(variant), {a.name: a.timed for a in variant.inputs}
    try:
        variant.summary(**{n: t[:, :2] if timed[n] else t
                           for n, t in x.items()})
    except flin.Error as e:
        check(variant.name, "has no transition" in str(e), e)
        return False
    return True


def loss(y, state):
    torch.manual_seed(5)
    w, u = torch.randn(2, ENDS[-1], *y.shape[2:]), torch.randn(state.shape)
    return w, u


def wanted(v):
    """y, the state, gradients: of the whole sequence."""
    x = inputs(v)
    y, state = v(**x, output_final_state=True)
    first = torch.randn(state.shape).requires_grad_()
    y, state = v(**x, initial_state=first, output_final_state=True)
    w, u = loss(y, state)
    ((w * y).sum() + (u * state).sum()).backward()
    return (x, first, y.detach(), state.detach(), w, u,
            {n: t.grad for n, t in x.items()}, first.grad)


def part(t, rank):
    return t[:, ENDS[rank]:ENDS[rank + 1]]


def run_all(rank, ranks):
    for name, (x, first, y, state, w, u, grads, dfirst) in WANTED.items():
        v = flin.stdlib[name]
        timed = {a.name: a.timed for a in v.inputs}
        mine = {n: (part(t, rank) if timed[n] else t).detach().clone()
                .requires_grad_() for n, t in x.items()}
        begin = first.detach().clone().requires_grad_()
        cut = context_parallel(v)
        with torch.no_grad():
            alone, none = cut(**mine, initial_state=begin)
        got, left = cut(**mine, initial_state=begin, output_final_state=True)
        close(f"{name}: y", got, part(y, rank), 2e-5)
        check(f"{name}: without gradients", none is None
              and torch.equal(alone, got))
        here = (part(w, rank) * got).sum()
        if rank == ranks - 1:
            close(f"{name}: the state", left, state, 2e-5)
            here = here + (u * left).sum()
        here.backward()
        for n, t in mine.items():
            want = grads[n]
            if timed[n]:
                close(f"{name}: d_{n}", t.grad, part(want, rank), 1e-4)
            else:                       # each rank has a part of the sum
                dist.all_reduce(t.grad)
                close(f"{name}: d_{n}", t.grad, want, 1e-4)
        dist.all_reduce(begin.grad)
        close(f"{name}: d_initial_state", begin.grad, dfirst, 1e-4)


def work(rank, ranks, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/met",
                            rank=rank, world_size=ranks)
    run_all(rank, ranks)
    with open(f"{folder}/{rank}", "w") as f:
        json.dump([harness.passed, harness.failed], f)
    dist.destroy_process_group()


if __name__ == "__main__":
    if not dist.is_available() or not dist.is_gloo_available():
        print("skip this PyTorch has no gloo")
        sys.exit()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    refused("no transition", flin.Error, "mlstm has no transition",
            context_parallel, flin.stdlib["mlstm"])
    WANTED = {n: wanted(flin.stdlib[n]) for n in flin.stdlib
              if has_transition(flin.stdlib[n])}
    check("variants", len(WANTED) > 10, len(WANTED))
    before = harness.passed, harness.failed
    with tempfile.TemporaryDirectory() as folder:
        processes.start_processes(work, (len(ENDS) - 1, folder),
                                  nprocs=len(ENDS) - 1, start_method="fork")
        for rank in range(len(ENDS) - 1):
            with open(f"{folder}/{rank}") as f:
                passed, failed = json.load(f)
            harness.passed += passed - before[0]
            harness.failed += failed - before[1]
    end()
