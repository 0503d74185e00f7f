"""Layers of flin beside modules written here, token by token, as those of
flash-linear-attention are: their weights go over by name, outputs and gradients
are the same."""
import importlib.util
import sys

from harness import check, close, end, flin, refused

if not importlib.util.find_spec("torch"):
    print("skip no PyTorch for", sys.executable)
    sys.exit()
import torch                                        # noqa: E402
import torch.nn.functional as F                     # noqa: E402

torch.set_num_threads(1)
torch.manual_seed(3)
T, D, H, K, V, R = 21, 10, 2, 4, 6, 3
W = 4                                   # taps


class Weights(dict):
    """A state dict, and its parts."""

    def linear(self, name, x, bias=""):
        return F.linear(x, self[name + ".weight"],
                        self[name + ".bias"] if bias else None)

    def conv(self, name, x, bias=None):
        """Of [T, channels], causal, with SiLU."""
        taps = self[name + ".weight"]
        y = F.conv1d(F.pad(x.t()[None], (W - 1, 0)), taps, bias,
                     groups=taps.shape[0])
        return F.silu(y[0].t())


def random(**shapes):
    return Weights({n.replace("__", "."): 0.5 * torch.randn(
        s, dtype=torch.float64) for n, s in shapes.items()})


def heads(x):
    return x.view(T, H, -1)


def rms(x, weight, eps=1e-5):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


def unit(x):
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6)


def delta(q, k, v, g, beta):
    """The gated delta rule, g a number or one a key."""
    S, out = torch.zeros(H, K, V, dtype=torch.float64), []
    for t in range(T):
        S = S * g[t].exp()[..., None]
        error = v[t] - (k[t][..., None] * S).sum(1)
        S = S + (beta[t][:, None] * k[t])[..., None] * error[:, None]
        out.append((q[t][..., None] * S).sum(1))
    return torch.stack(out)


def qkv(w, x):
    q, k, v = (heads(w.conv(f"{n}_conv1d", w.linear(f"{n}_proj", x)))
               for n in "qkv")
    return unit(q) * K ** -.5, unit(k), v


# ---- the modules: weights, and what becomes of [T, D] ----

PROJECTIONS = dict(q_proj__weight=(H * K, D), k_proj__weight=(H * K, D),
                   v_proj__weight=(H * V, D), o_proj__weight=(D, H * V))
TAPS = dict(q_conv1d__weight=(H * K, 1, W), k_conv1d__weight=(H * K, 1, W),
            v_conv1d__weight=(H * V, 1, W))


def gla_weights():
    return random(**PROJECTIONS, g_proj__weight=(H * V, D),
                  gk_proj__0__weight=(R, D), gk_proj__1__weight=(H * K, R),
                  gk_proj__1__bias=(H * K,), g_norm_swish_gate__weight=(V,))


def gla(w, x):
    q, k, v = (heads(w.linear(f"{n}_proj", x)) for n in "qkv")
    g = w.linear("gk_proj.1", w.linear("gk_proj.0", x), "bias")
    g, q = heads(F.logsigmoid(g)) / 16, q * K ** -.5
    S, out = torch.zeros(H, K, V, dtype=torch.float64), []
    for t in range(T):
        S = S * g[t].exp()[..., None] + k[t][..., None] * v[t][:, None]
        out.append((q[t][..., None] * S).sum(1))
    o = rms(torch.stack(out), w["g_norm_swish_gate.weight"])
    o = o * F.silu(heads(w.linear("g_proj", x)))
    return w.linear("o_proj", o.flatten(1))


def gated_deltanet_weights():
    return random(**PROJECTIONS, **TAPS, A_log=(H,), dt_bias=(H,),
                  a_proj__weight=(H, D), b_proj__weight=(H, D),
                  g_proj__weight=(H * V, D), o_norm__weight=(V,))


def gated_deltanet(w, x):
    g = -w["A_log"].exp() * F.softplus(w.linear("a_proj", x) + w["dt_bias"])
    o = delta(*qkv(w, x), g[..., None], w.linear("b_proj", x).sigmoid())
    o = rms(o, w["o_norm.weight"]) * F.silu(heads(w.linear("g_proj", x)))
    return w.linear("o_proj", o.flatten(1))


def kda_weights():
    return random(**PROJECTIONS, **TAPS, A_log=(H,), dt_bias=(H * K,),
                  b_proj__weight=(H, D), f_proj__0__weight=(R, D),
                  f_proj__1__weight=(H * K, R), g_proj__0__weight=(5, D),
                  g_proj__1__weight=(H * V, 5), g_proj__1__bias=(H * V,),
                  o_norm__weight=(V,))


def kda(w, x):
    f = w.linear("f_proj.1", w.linear("f_proj.0", x)) + w["dt_bias"]
    g = -w["A_log"].exp()[:, None] * F.softplus(heads(f))
    o = delta(*qkv(w, x), g, w.linear("b_proj", x).sigmoid())
    gate = w.linear("g_proj.1", w.linear("g_proj.0", x), "bias")
    o = rms(o, w["o_norm.weight"]) * heads(gate).sigmoid()
    return w.linear("o_proj", o.flatten(1))


def mamba2_weights():
    n = H * V + 2 * K
    return random(in_proj__weight=(H * V + n + H, D), conv1d__weight=(n, 1, W),
                  conv1d__bias=(n,), A_log=(H,), dt_bias=(H,), D=(H,),
                  norm__weight=(H * V,), out_proj__weight=(D, H * V))


def mamba2(w, x):
    n = H * V + 2 * K
    z, xBC, dt = w.linear("in_proj", x).split([H * V, n, H], -1)
    xBC = w.conv("conv1d", xBC, w["conv1d.bias"])
    u, B, C = xBC.split([H * V, K, K], -1)
    u, dt = heads(u), F.softplus(dt + w["dt_bias"])
    S, out = torch.zeros(H, K, V, dtype=torch.float64), []
    for t in range(T):
        a = (-w["A_log"].exp() * dt[t]).exp()[:, None, None]
        S = a * S + B[t][None, :, None] * (dt[t][:, None] * u[t])[:, None]
        out.append((C[t][None, :, None] * S).sum(1) + w["D"][:, None] * u[t])
    o = torch.stack(out).flatten(1) * F.silu(z)
    return w.linear("out_proj", rms(o, w["norm.weight"]))


def rwkv7_weights():
    mixed = {f"x_{n}": (1, 1, D) for n in "rwkvag"}
    return random(
        **mixed, r_proj__weight=(H * K, D), k_proj__weight=(H * K, D),
        v_proj__weight=(H * V, D), w_lora__lora__0__weight=(R, D),
        w_lora__lora__2__weight=(H * K, R), w_lora__lora__2__bias=(H * K,),
        a_lora__lora__0__weight=(5, D), a_lora__lora__2__weight=(H * K, 5),
        a_lora__lora__2__bias=(H * K,), g_lora__lora__0__weight=(7, D),
        g_lora__lora__2__weight=(H * V, 7), k_k=(H * K,), k_a=(H * K,),
        r_k=(H, K), g_norm__weight=(H * V,), g_norm__bias=(H * V,),
        o_proj__weight=(D, H * V))


def rwkv7(w, x):
    shift = F.pad(x, (0, 0, 1, -1)) - x
    r, ww, k, v, a, g = (x + shift * w[f"x_{n}"][0] for n in "rwkvag")
    r, k, v = (w.linear(f"{n}_proj", t) for n, t in zip("rkv", (r, k, v)))
    ww = w.linear("w_lora.lora.2", w.linear("w_lora.lora.0", ww).tanh(), "b")
    ww = heads(-0.6065306597126334 * ww.sigmoid())
    a = w.linear("a_lora.lora.2", w.linear("a_lora.lora.0", a), "b").sigmoid()
    g = w.linear("g_lora.lora.2", w.linear("g_lora.lora.0", g).sigmoid())
    kk = unit(heads(k * w["k_k"]))
    k = heads(k * (1 + (a - 1) * w["k_a"]))
    r, v, a = map(heads, (r, v, a))
    S, out = torch.zeros(H, K, V, dtype=torch.float64), []
    for t in range(T):
        erased = (-kk[t][..., None] * S).sum(1, keepdim=True)
        S = S * ww[t].exp()[..., None] + (kk[t] * a[t])[..., None] * erased \
            + k[t][..., None] * v[t][:, None]
        out.append((r[t][..., None] * S).sum(1))
    o = F.group_norm(torch.stack(out).flatten(1), H, w["g_norm.weight"],
                     w["g_norm.bias"], V * 1e-5)
    o = o + ((r * k * w["r_k"]).sum(-1, keepdim=True) * v).flatten(1)
    return w.linear("o_proj", o * g)


# ---- side by side ----

AXES = {"gla": {"r": R}, "gated_deltanet": {}, "kda": {"r": R, "s": 5},
        "mamba2": {}, "rwkv7": {"e": R, "f": 5, "g": 7}}


def compare(name, module, weights):
    layer = flin.nn.Layer(name, d=D, heads=H, k=K, v=V, dtype=torch.float64,
                          **AXES[name])
    w = weights()
    layer.load_fla(w)
    kept = layer.fla_state_dict()
    check(name + ": state dict", kept.keys() == w.keys() and all(
        torch.equal(kept[n], w[n]) for n in w))
    x = torch.randn(1, T, D, dtype=torch.float64, requires_grad=True)
    x1 = x.detach().requires_grad_()
    for p in w.values():
        p.requires_grad_()
    y, want = layer(x)[0], module(w, x1[0])[None]
    close(name, y, want, 1e-9)
    dy = torch.randn_like(y)
    y.backward(dy)
    want.backward(dy)
    close(name + ": gradient of x", x.grad, x1.grad, 1e-8)
    with torch.no_grad():               # gradients go over as weights do
        for p in layer.weights.values():
            p.copy_(p.grad)
    for n, d in layer.fla_state_dict().items():
        close(f"{name}: gradient of {n}", d, w[n].grad, 1e-8)


compare("gla", gla, gla_weights)
compare("gated_deltanet", gated_deltanet, gated_deltanet_weights)
compare("kda", kda, kda_weights)
compare("mamba2", mamba2, mamba2_weights)
compare("rwkv7", rwkv7, rwkv7_weights)

layer = flin.nn.Layer("gla", d=D, heads=H, k=K, v=V, r=R)
before = layer.weights["Wq"].clone()
w = gla_weights()
refused("another module's", flin.Error, "has an unknown A_log",
        layer.load_fla, dict(w, A_log=torch.zeros(H)))
refused("less", flin.Error, "has no gk_proj.1.bias", layer.load_fla,
        {n: t for n, t in w.items() if n != "gk_proj.1.bias"})
refused("another shape", flin.Error,
        "o_proj.weight has shape [12, 10], but [10, 12] is wanted",
        layer.load_fla, dict(w, **{"o_proj.weight": torch.zeros(12, 10)}))
check("left as it was", torch.equal(before, layer.weights["Wq"]))
end()
