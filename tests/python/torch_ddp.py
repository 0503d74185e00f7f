"""DistributedDataParallel over a layer: two processes, one gradient. With
--nccl each has a GPU."""
import importlib.util
import os
import sys
import tempfile

from harness import CARDS, backend, check, close, end, flin, here

if not importlib.util.find_spec("torch"):
    print("skip no PyTorch for", sys.executable)
    sys.exit()
import torch                                        # noqa: E402
import torch.distributed as dist                    # noqa: E402
import torch.multiprocessing as processes           # noqa: E402


def make():
    torch.manual_seed(7)
    layer = flin.nn.LinearAttention(16, "gated_deltanet", num_heads=2)
    return layer, torch.randn(2, 20, 16)


def work(rank, folder):
    torch.set_num_threads(1)
    dist.init_process_group(backend(rank), rank=rank, world_size=2,
                            init_method=f"file://{folder}/store")
    layer, h = map(here, make())
    model = torch.nn.parallel.DistributedDataParallel(layer)
    model(h[rank:rank + 1])[0].square().mean().backward()
    torch.save([p.grad.cpu() for p in layer.parameters()], f"{folder}/{rank}")
    dist.destroy_process_group()


if __name__ == "__main__":
    if not dist.is_available() or not CARDS and not dist.is_gloo_available():
        print("skip this PyTorch has no gloo")
        sys.exit()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as folder:
        processes.start_processes(work, (folder,), nprocs=2,
                                  start_method="fork")
        first, second = (torch.load(f"{folder}/{i}") for i in range(2))
    layer, h = make()
    layer(h)[0].square().mean().backward()
    for (name, p), a, b in zip(layer.named_parameters(), first, second):
        check(f"{name}: one gradient", bool((a == b).all()))
        close(f"{name}: of both halves", a, p.grad, 1e-5)
    end()
