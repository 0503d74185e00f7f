"""Linear regression in context: each token brings x and the pair of the token
before, and should say y = W x, with W drawn for each sequence. Prints the part
of y's square that is missed in the second half. Where energies are unequal, the
coordinates of x, shuffled for each sequence, go from 1 down to 1 / SPREAD of a
size, and W makes up for it: what counts keys as it reads them (precond_gdn) can
weigh them by it.

    python3 examples/quality/regress.py [--rules A,B] [--full]"""
import sweep
import torch

INPUTS, OUTPUTS, SPREAD = 16, 4, 8
TASKS = "equal energies", "unequal energies"
SIZES = {False: dict(width=64, heads=2, blocks=1, taps=1, steps=300,
                     batch_size=32, length=64),
         True: dict(width=64, heads=2, blocks=1, taps=1, steps=1500,
                    batch_size=32, length=64)}
numbers = True
higher = False


def sizes(a, name):
    return 2 * INPUTS + OUTPUTS, OUTPUTS


def batch(a, name, draw, rows):
    """What tokens bring [rows, T, inputs], and y [rows, T, outputs]."""
    make = {"generator": draw, "device": draw.device}
    z = torch.randn(rows, a.length, INPUTS, **make)
    w = torch.randn(rows, INPUTS, OUTPUTS, **make)
    size = SPREAD ** -torch.linspace(0, 1, INPUTS, device=draw.device)
    order = torch.rand(rows, INPUTS, **make).argsort(1)
    x = z * size[order][:, None] if name == TASKS[1] else z
    x = x * (INPUTS / x.square().sum((1, 2), keepdim=True) * a.length) ** 0.5
    y = z @ w * INPUTS ** -0.5
    before = torch.cat([x, y], 2).roll(1, 1)
    before[:, 0] = 0
    return torch.cat([x, before], 2), y


def scores(a, name, model):
    x, y = (sweep.same_to_all(model, t, a.device) for t in
            batch(a, name, torch.Generator().manual_seed(-1), 256))
    half = a.length // 2
    missed = (model(x) - y.mT)[:, half:].square().mean((0, 1, 3))
    return {"missed": (missed / y[:, half:].square().mean()).tolist()}


if __name__ == "__main__":
    sweep.run("regress", sweep.arguments(__doc__, SIZES), TASKS)
