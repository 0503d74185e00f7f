"""Weights of layers under the names that flash-linear-attention's modules give
them, and in the shapes that they have there."""
from __future__ import annotations

from typing import Any

from . import Error

# How a tensor there lies: an nn.Linear's weight is [out, in], taps are
# [channels, 1, taps]; where several weights are one tensor, rows follow rows.
LINEAR, WAY_OUT, TAPS, FLAT, ROW, SAME = range(6)

_PROJECTIONS = {"q_proj.weight": (LINEAR, "Wq"),
                "k_proj.weight": (LINEAR, "Wk"),
                "v_proj.weight": (LINEAR, "Wv"),
                "o_proj.weight": (WAY_OUT, "Wo")}
_TAPS = {"q_conv1d.weight": (TAPS, "cq"), "k_conv1d.weight": (TAPS, "ck"),
         "v_conv1d.weight": (TAPS, "cv")}
_DECAYS = {"A_log": (FLAT, "A_log"), "dt_bias": (FLAT, "dt")}

# By a layer's name.
NAMES = {
    "gla_layer": {
        **_PROJECTIONS, "g_proj.weight": (LINEAR, "Wg"),
        "gk_proj.0.weight": (LINEAR, "Wr"), "gk_proj.1.weight": (LINEAR, "Wa"),
        "gk_proj.1.bias": (FLAT, "a"),
        "g_norm_swish_gate.weight": (FLAT, "norm")},
    "gated_deltanet_layer": {
        **_PROJECTIONS, **_TAPS, **_DECAYS, "a_proj.weight": (LINEAR, "Wa"),
        "b_proj.weight": (LINEAR, "Wb"), "g_proj.weight": (LINEAR, "Wg"),
        "o_norm.weight": (FLAT, "norm")},
    "kda_layer": {
        **_PROJECTIONS, **_TAPS, **_DECAYS, "b_proj.weight": (LINEAR, "Wb"),
        "f_proj.0.weight": (LINEAR, "Wr"), "f_proj.1.weight": (LINEAR, "Wa"),
        "g_proj.0.weight": (LINEAR, "Ws"), "g_proj.1.weight": (LINEAR, "Wg"),
        "g_proj.1.bias": (FLAT, "bg"), "o_norm.weight": (FLAT, "norm")},
    "mamba2_layer": {
        "in_proj.weight": (LINEAR, "Wz", "Wx", "WB", "WC", "Wdt"),
        "conv1d.weight": (TAPS, "cx", "cB", "cC"),
        "conv1d.bias": (FLAT, "bx", "bB", "bC"), **_DECAYS, "D": (FLAT, "D"),
        "norm.weight": (FLAT, "norm"), "out_proj.weight": (WAY_OUT, "Wo")},
    "rwkv7_layer": {
        **{f"x_{n}": (ROW, f"m{n}") for n in "rwkvag"},
        "r_proj.weight": (LINEAR, "Wr"), "k_proj.weight": (LINEAR, "Wk"),
        "v_proj.weight": (LINEAR, "Wv"), "o_proj.weight": (WAY_OUT, "Wo"),
        "w_lora.lora.0.weight": (LINEAR, "Ww"),
        "w_lora.lora.2.weight": (LINEAR, "Vw"),
        "w_lora.lora.2.bias": (FLAT, "w0"),
        "a_lora.lora.0.weight": (LINEAR, "Wa"),
        "a_lora.lora.2.weight": (LINEAR, "Va"),
        "a_lora.lora.2.bias": (FLAT, "a0"),
        "g_lora.lora.0.weight": (LINEAR, "Wg"),
        "g_lora.lora.2.weight": (LINEAR, "Vg"), "k_k": (FLAT, "k_k"),
        "k_a": (FLAT, "k_a"), "r_k": (SAME, "r_k"),
        "g_norm.weight": (FLAT, "norm"), "g_norm.bias": (FLAT, "bias")},
}


def _names(name: str) -> dict[str, tuple]:
    if name not in NAMES:
        raise Error(f"Layer: {name} has no names in flash-linear-attention; "
                    f"those that have: {', '.join(NAMES)}")
    return NAMES[name]


def _theirs(kind: int, p: Any) -> Any:
    """A weight as it lies there."""
    if kind == LINEAR:
        return p.flatten(1).t()
    if kind == WAY_OUT:
        return p.flatten(0, -2).t()
    if kind == TAPS:
        return p.flatten(0, -2)[:, None]
    return p if kind == SAME else p.flatten()[None, None] if kind == ROW \
        else p.flatten()


def _ours(kind: int, t: Any, shape: Any) -> Any:
    """What _theirs undoes."""
    return (t.t() if kind in (LINEAR, WAY_OUT) else t).reshape(shape)


def dump(name: str, weights: Any) -> dict[str, Any]:
    """A state dict of the layer's weights, under their names."""
    import torch
    return {theirs: torch.cat([_theirs(kind, weights[n].detach())
                               for n in ours]).contiguous()
            for theirs, (kind, *ours) in _names(name).items()}


def load(name: str, weights: Any, state: dict[str, Any]) -> None:
    """Fills the layer's weights from a state dict with their names; nothing is
    written where one does not fit."""
    names, found = _names(name), {}
    for what, keys in (("has no", set(names) - set(state)),
                       ("has an unknown", set(state) - set(names))):
        if keys:
            raise Error(f"Layer: the state dict {what} {min(keys)}\n  help: "
                        f"{name} takes {', '.join(names)}")
    for theirs, (kind, *ours) in names.items():
        parts = [_theirs(kind, weights[n].detach()) for n in ours]
        want = [sum(p.shape[0] for p in parts), *parts[0].shape[1:]]
        if list(state[theirs].shape) != want:
            raise Error(f"Layer: {name}: {theirs} has shape "
                        f"{list(state[theirs].shape)}, but {want} is wanted")
        rows = state[theirs].split([p.shape[0] for p in parts])
        for n, t in zip(ours, rows):
            found[n] = _ours(kind, t, weights[n].shape)
    for n, t in found.items():
        weights[n].data.copy_(t)
