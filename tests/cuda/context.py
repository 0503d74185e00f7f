"""Parts of a sequence on a GPU, whose kernels keep: begun by what tells of
states, forward and back, and gone on with. One rank, whose part runs in two
pieces. The host's tensors are the GPU's, of a driver of tests that reads the
host's memory (FAKE_PAGEABLE=1).

    python3 tests/cuda/context.py [VARIANTS]"""
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "../python"))
import torch                                        # noqa: E402
import torch.distributed as dist                    # noqa: E402
from harness import check, close, end, flin         # noqa: E402

from flin import _calls, _torch                     # noqa: E402
from flin.distributed import context_parallel       # noqa: E402

T, H, D, PIECES, ALIGNMENT = 192, 2, 64, 2, 256
NAMES = sys.argv[1:] or ["gla"]
DOMAIN = {"log_decay": lambda x: torch.nn.functional.logsigmoid(x) / 4,
          "unit": torch.sigmoid,
          "unit_norm": lambda x: torch.nn.functional.normalize(x, dim=-1)}


def inputs(v):
    torch.manual_seed(3)
    found = {}
    for a in v.inputs:
        x = DOMAIN.get(a.domain, lambda x: x)(torch.randn(
            (1, T, H) + tuple(v.sizes[axis] or D for axis in a.axes)))
        half = a.domain in ("normal", "unit_norm")
        found[a.name] = x.to(torch.bfloat16 if half else torch.float32)
    return found


def both_ways(f, x):
    """What f makes of x, and gradients of it."""
    x = {n: t.clone().requires_grad_() for n, t in x.items()}
    y, _ = f(**x)
    (y.float() * torch.linspace(-1, 1, y.numel()).view(y.shape)).sum() \
        .backward()
    return {"y": y.detach(), **{n: t.grad for n, t in x.items()}}


def place(call, like, cu):
    call.backend, call.stream = b"cuda", None
    call.cu_seqlens_device = None
    call.cu_seqlens = None if cu is None else cu.data_ptr()


def space(size, like):
    raw = torch.empty(size + ALIGNMENT - 1, dtype=torch.uint8)
    return raw[-raw.data_ptr() % ALIGNMENT:][:size]


def watched(launch, begun):
    def run(caller, door, r, *more):
        begun.append(bool(r.begun))
        return launch(caller, door, r, *more)
    return run


if not os.environ.get("FAKE_PAGEABLE"):
    print("skip no driver of tests")
    sys.exit()
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
os.environ["FLIN_SEGMENTS"] = "1"
dist.init_process_group("gloo", rank=0, world_size=1, init_method="file://"
                        + tempfile.mkdtemp() + "/met")
want = {name: both_ways(flin.stdlib[name], {
    n: t.float() for n, t in inputs(flin.stdlib[name]).items()})
    for name in NAMES}
_torch.place, _torch.space = place, space
torch.Tensor.is_cuda = property(lambda t: True)
launch = _calls.Caller.launch
for name in NAMES:
    begun, v = [], flin.stdlib[name]
    _calls.Caller.launch = watched(launch, begun)
    got = both_ways(context_parallel(v, pieces=PIECES), inputs(v))
    for n, t in want[name].items():
        close(f"{name}: {n}", got[n].float(), t.float(), 1e-2)
    with torch.no_grad():
        y, _ = context_parallel(v, pieces=PIECES)(**inputs(v))
    close(f"{name}: y alone", y.float(), want[name]["y"].float(), 1e-2)
    # forward goes on from the summary, and back from the starts' gradients
    check(f"{name} is begun", begun == [True, False, True, False],
          begun)
dist.destroy_process_group()
end()
