"""What peers.py measures: our variants, the functions of flash-linear-attention
and mamba, or of Helion's examples, that compute the same, and inputs for both.

The peers are those installed, or unpacked in peers/fla_src and
peers/mamba_src; of the latter only the modules that are wanted are loaded.
Helion's examples are no package: HELION names a checkout of it."""
import importlib
import os
import sys
import types

import torch
import torch.nn.functional as F

from tree import HERE
import flin

SHAPES = {"S": (4, 2048, 16, 128), "M": (2, 16384, 16, 128),
          "96": (1, 8192, 96, 128), "L": (1, 32768, 16, 128),
          "wide": (4, 4096, 64, 128)}
LOG_STRENGTH = 0.4054651081     # log 1.5, as precond_gdn's authors have it
RETENTION = """
local flin = require "flin"
return flin.variant {
  name  = "retention",
  input = { q = "t k", k = "t k", v = "t v", g = ": log_decay" },
  state = { S = "k v" },
  step  = function (x, s)
    local S = flin.exp(x.g) * s.S + flin.outer(x.k, x.v)
    return { S = S }, flin.dot(x.q, S)
  end,
}
"""


def bare(package, folder):
    """What is unpacked there, without what its __init__.py loads."""
    folder = os.path.join(HERE, "../../peers", folder, package)
    for name in (package, package + ".ops"):
        path = os.path.join(folder, *name.split(".")[1:])
        if os.path.isdir(path):
            module = sys.modules[name] = types.ModuleType(name)
            module.__path__, module.__version__ = [path], ""


bare("fla", "fla_src")
bare("mamba_ssm", "mamba_src")


# ---- inputs, by our names ----


def normal(*shape):
    return torch.randn(shape, device="cuda", dtype=torch.bfloat16)


def keys(*shape):
    return F.normalize(normal(*shape).float(), dim=-1).bfloat16()


def gate(*shape):
    return F.logsigmoid(torch.randn(shape, device="cuda"))


def unit(*shape):
    return torch.rand(shape, device="cuda")


def heads(H):
    return torch.arange(H, device="cuda", dtype=torch.float32)


def qkv(B, T, H, D):
    return {"q": normal(B, T, H, D), "k": keys(B, T, H, D),
            "v": normal(B, T, H, D)}


def scalar_gate(B, T, H, D):
    return dict(qkv(B, T, H, D), g=gate(B, T, H))


def key_gate(B, T, H, D):
    return dict(qkv(B, T, H, D), g=gate(B, T, H, D).clamp(-5).bfloat16())


def with_beta(make):
    return lambda B, T, H, D: dict(make(B, T, H, D), beta=unit(B, T, H))


def preconditioned(make):
    """q is of norm 1, too: theirs makes it so."""
    return lambda B, T, H, D: dict(
        with_beta(make)(B, T, H, D), q=keys(B, T, H, D), g_atk=gate(B, T, H),
        beta_atk=unit(B, T, H), center=torch.full((H,), -0.2, device="cuda"),
        strength=torch.full((H,), LOG_STRENGTH, device="cuda"))


def retention(B, T, H, D):
    return dict(qkv(B, T, H, D), g=torch.log1p(-2. ** (-5 - heads(H))))


def retnet(B, T, H, D):
    return dict(retention(B, T, H, D),
                theta=(10000. ** -unit(D // 2)).expand(H, -1).contiguous())


def lightning(B, T, H, D):
    return dict(qkv(B, T, H, D), g=-8 / H * heads(H))


def hgrn2(B, T, H, D):
    x = key_gate(B, T, H, D)
    return {n: x[n] for n in "qvg"}


def comba(B, T, H, D):
    return dict(with_beta(scalar_gate)(B, T, H, D),
                b=torch.randn(H, device="cuda"), d=unit(H))


def momentum(B, T, H, D):
    return dict(with_beta(scalar_gate)(B, T, H, D), p=keys(B, T, H, D),
                mu=gate(B, T, H), eta=unit(B, T, H))


def gdn2(B, T, H, D):
    return dict(key_gate(B, T, H, D), b=unit(B, T, H, D).bfloat16(),
                w=unit(B, T, H, D).bfloat16())


def rwkv6(B, T, H, D):
    x = key_gate(B, T, H, D)
    return {"r": x["q"], "k": x["k"], "v": x["v"], "w": x["g"],
            "u": torch.randn(H, D, device="cuda")}


def rwkv7(B, T, H, D):
    return {"r": normal(B, T, H, D), "k": keys(B, T, H, D),
            "v": normal(B, T, H, D), "kappa": keys(B, T, H, D),
            "w": (-0.6065306597 * unit(B, T, H, D)).bfloat16(),
            "a": unit(B, T, H, D).bfloat16()}


def two_steps(B, T, H, D):
    return {"q": normal(B, T, H, D), "k": keys(B, T, H, 2, D),
            "v": normal(B, T, H, 2, D), "g": gate(B, T, H),
            "beta": unit(B, T, H, 2)}


def mamba2(B, T, H, D):
    return {"C": normal(B, T, H, D), "B": keys(B, T, H, D),
            "x": normal(B, T, H, D), "dt": unit(B, T, H),
            "A_log": torch.randn(H, device="cuda"),
            "D": torch.randn(H, device="cuda")}


def mamba3(B, T, H, D):
    return dict(mamba2(B, T, H, D), theta=normal(B, T, H, D // 2),
                **{"lambda": torch.sigmoid(normal(B, T, H).float())})


# ---- and by theirs ----


def same(**x):
    return x


def rotated(x, theta):
    """Pairs of neighbours, by token 1's angle, 2's, and so on."""
    angle = torch.arange(1, x.shape[1] + 1, device=x.device,
                         dtype=torch.float64)[:, None, None] * theta
    pairs = torch.view_as_complex(x.double().unflatten(-1, (-1, 2)))
    turn = torch.polar(torch.ones_like(angle), angle)
    return torch.view_as_real(pairs * turn).flatten(-2).to(x)


def as_retention(q, k, v, g, theta):
    return dict(q=rotated(q, theta), k=rotated(k, theta), v=v)


def steps_as_tokens(x):
    return x.transpose(2, 3).flatten(1, 2).contiguous()


def as_comba(q, k, v, g, beta, b, d):
    p = torch.sigmoid(b)[:, None] * k
    return dict(q=(q - d[:, None] * p).to(q), k=k, v=v, p=p.to(k), g=g,
                beta=beta)


def as_momentum(g, mu, **x):
    return dict(x, log_alpha=g, log_mu=mu, use_qk_l2norm_in_kernel=False,
                use_p_times_alpha=False)


def as_preconditioned(center, strength, **x):
    return dict(x, log_atk_scale=center)


def as_rwkv7(r, k, v, w, kappa, a):
    return dict(r=r, w=w, k=k, v=v, a=-kappa, b=kappa * a)


def as_deltaproduct(q, k, v, g, beta):
    k, v, beta = map(steps_as_tokens, (k, v, beta))
    return dict(q=q, k=k, v=v, g=g, beta=beta, num_householder=2)


def as_mamba2(C, B, x, dt, A_log, D):
    return dict(x=x, dt=dt, A=-A_log.exp(), B=B, C=C, D=D, chunk_size=256)


def as_mamba3(C, B, x, dt, A_log, D, theta, **more):
    dt, trap = (t.transpose(1, 2).contiguous()
                for t in (dt, torch.logit(more["lambda"])))
    none = torch.zeros(C.shape[2:], device=C.device)
    return dict(Q=C, K=B, V=x, ADT=-A_log.exp()[:, None] * dt, DT=dt,
                Trap=trap, Q_bias=none, K_bias=none, Angles=theta, D=D)


# Our variant, their function, inputs, options of both, theirs of ours. What
# their functions want made of the inputs beforehand is not timed.
OPS = {
    "linear": ("linear", "linear_attn.chunk_linear_attn", qkv, {},
               lambda **x: dict(x, normalize=False)),
    "retention": (RETENTION, "retention.chunk_retention", retention, {},
                  lambda q, k, v, g: dict(q=q, k=k, v=v)),
    "retnet": ("retnet", "retention.chunk_retention", retnet, {},
               as_retention),
    "simple_gla": ("simple_gla", "simple_gla.chunk_simple_gla", scalar_gate,
                   {}, same),
    "lightning": ("lightning", "lightning_attn.chunk_lightning_attn",
                  lightning, {"scale": 1.0}, lambda q, k, v, g: dict(
                      q=F.silu(q), k=F.silu(k), v=v, layer_idx=0,
                      num_layers=1)),
    "mamba2": ("mamba2", "mamba_ssm.ops.triton.ssd_combined."
               "mamba_chunk_scan_combined", mamba2, {}, as_mamba2),
    "mamba3": ("mamba3", "mamba_ssm.ops.triton.mamba3.mamba3_siso_combined."
               "mamba3_siso_combined", mamba3, {}, as_mamba3),
    "gla": ("gla", "gla.chunk_gla", key_gate, {}, same),
    "hgrn2": ("hgrn2", "gla.chunk_gla", hgrn2, {}, lambda q, v, g: dict(
        q=q, k=(1 - g.float().exp()).to(q), v=v, g=g)),
    "delta": ("deltanet", "delta_rule.chunk_delta_rule", with_beta(qkv), {},
              same),
    "gdn": ("gated_deltanet", "gated_delta_rule.chunk_gated_delta_rule",
            with_beta(scalar_gate), {}, same),
    "comba": ("comba", "comba.chunk_comba", comba, {"scale": 1.0}, as_comba),
    "momentum": (
        "momentum_deltanet",
        "momentum_delta_rule.chunk_momentum_delta_rule", momentum, {},
        as_momentum),
    "precond_gdn": (
        "precond_gdn", "precond_gated_delta_rule."
        "chunk_precond_gated_delta_rule", preconditioned(scalar_gate), {},
        lambda **x: dict(as_preconditioned(**x),
                         use_qk_l2norm_in_kernel=False)),
    "deltaproduct": (
        "deltaproduct", "gated_delta_product.chunk_gated_delta_product",
        two_steps, {}, as_deltaproduct),
    # without safe_gate its scores are not made by tensor cores
    "kda": ("kda", "kda.chunk_kda", with_beta(key_gate), {},
            lambda **x: dict(x, safe_gate=True)),
    "gdn2": ("gdn2", "gdn2.chunk_gdn2", gdn2, {}, same),
    "precond_kda": ("precond_kda", "precond_kda.chunk_precond_kda",
                    preconditioned(key_gate), {}, as_preconditioned),
    "rwkv6": ("rwkv6", "rwkv6.chunk_rwkv6", rwkv6, {"scale": 1.0}, same),
    "rwkv7": ("rwkv7", "rwkv7.chunk_rwkv7", rwkv7, {"scale": 1.0}, as_rwkv7),
}


# Helion's examples of these; they want heads before tokens.
HELION = {"linear": "VANILLA", "retention": "RETENTION",
          "simple_gla": "SIMPLE_GLA", "gla": "FULL_GLA",
          "delta": "DELTA_RULE", "gdn": "GATED_DELTA_RULE", "kda": "KDA"}
if "HELION" in os.environ:
    OPS = {n: OPS[n] for n in HELION}
    os.environ.setdefault("HELION_AUTOTUNE_CACHE", "AOTAutotuneCache")


def heads_first(q, k, v, g=None, beta=None):
    if g is not None and g.dim() == 1:
        g = g.expand(*q.shape[:3])
    return {n: t.transpose(1, 2).contiguous() for n, t in
            dict(q=q, k=k, v=v, g=g, beta=beta).items() if t is not None}


def helion(name):
    """Their function of such inputs, with the configurations that they chose
    for this GPU; its result as ours has it."""
    sys.path.append(os.environ["HELION"])
    engine = importlib.import_module("examples.linear.linear_attention_engine")
    f = engine.get_helion_fwd_kernel(
        engine.LinearAttentionVariant[HELION[name]])
    return lambda **x: first(f(scale=x["q"].shape[-1] ** -0.5,
                               **x)).transpose(1, 2)


def first(results):
    return results[0] if isinstance(results, tuple) else results


class Op:
    def __init__(self, name):
        ours, self.path, self.make, self.options, self.rename = OPS[name]
        self.name, self.flin = name, flin.load(ours)
        if "HELION" in os.environ:
            self.rename = heads_first

    def function(self):
        if "HELION" in os.environ:
            return helion(self.name)
        module, name = self.path.rsplit(".", 1)
        module = module if "." in module else "fla.ops." + module
        f = getattr(importlib.import_module(module), name)
        return lambda **x: first(f(**x, **self.options))

    def theirs(self, x):
        return self.called("theirs", self.rename(**x))

    def ours(self, x):
        return self.called("ours", x)

    def called(self, side, x):
        """Their function, or ours, of what it takes itself."""
        if side == "ours":
            return lambda: self.flin(**x, **self.options)[0]
        f = self.function()
        return lambda: f(**x)

    def leaves(self, side, x):
        """What the function takes, made of these inputs beforehand: tensors
        whose gradients end there, as often as they are asked for."""
        with torch.no_grad():
            x = x if side == "ours" else self.rename(**x)
        return {n: t.detach() if torch.is_tensor(t) else t
                for n, t in x.items()}

    def truth(self, x, dy=None):
        """y in float64, token by token; the inputs' gradients where dy is
        given."""
        x = {n: t.detach().cpu().double() for n, t in x.items()}
        if dy is None:
            return self.flin.reference(**x, **self.options)[0]
        return self.flin.backward(**x, **self.options, do=dy.cpu().double())
