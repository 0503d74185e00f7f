"""flin under layers of flash-linear-attention, which stay as they are: the
same outputs and the same gradients, theirs beside ours.

    python3 examples/torch_swap.py [FOLDER [LAYER]]

Needs PyTorch, a GPU, and flash-linear-attention: installed, or unpacked in
FOLDER (default: peers/fla_src; github.com/fla-org/flash-linear-attention).
LAYER: DeltaNet or GatedDeltaNet, default both. It takes a minute or two, in
which Triton compiles."""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../lang/python"))
sys.path.insert(0, sys.argv[1] if len(sys.argv) > 1
                else os.path.join(HERE, "../peers/fla_src"))
try:
    import torch
    from triton.runtime.autotuner import Autotuner
except ImportError as e:
    sys.exit(f"skip {e}")
tune = Autotuner.__init__


def first(self, fn, names, configs, *rest, **more):
    """One configuration each, not the fastest of dozens: for what is computed
    they are all one, and they take minutes to compile."""
    tune(self, fn, names, configs[:1], *rest, **more)


Autotuner.__init__ = first
try:
    from fla.layers import delta_net, gated_deltanet
    from fla.ops.gated_delta_rule.naive import naive_recurrent_gated_delta_rule
except ImportError as e:
    sys.exit(f"skip {e}\nflash-linear-attention is wanted: pip install "
             "flash-linear-attention, or unpack it in peers/fla_src")
import flin                                         # noqa: E402

# Their layer gives its kernel projections, and wants the gates made there. So
# does this step: what is per token costs no kernel of its own.
GATED = """
local flin = require "flin"
local exp, dot, outer, l2norm = flin.exp, flin.dot, flin.outer, flin.l2norm

return flin.variant {
  name  = "gated_deltanet_with_gates",
  input = { q = "t k", k = "t k", v = "t v", g = "t", beta = "t",
            A_log = "", dt_bias = "" },
  state = { S = "k v" },
  step  = function (x, s)
    local q = l2norm(x.q) * flin.rsqrt(flin.size(x.q, "k"))
    local k, beta = l2norm(x.k), flin.sigmoid(x.beta)
    local S = exp(-exp(x.A_log) * flin.softplus(x.g + x.dt_bias)) * s.S
    S = S + outer(beta * k, x.v - dot(k, S))
    return { S = S }, dot(q, S)
  end,
}
"""
gated = flin.load(GATED)


def gated_rule(q, k, v, g, beta, A_log, dt_bias, initial_state=None,
               output_final_state=False, cu_seqlens=None,
               state_v_first=False, allow_neg_eigval=False, **on):
    """chunk_gated_delta_rule, as the layer calls it."""
    assert not allow_neg_eigval and on == {
        "use_qk_l2norm_in_kernel": True, "use_gate_in_kernel": True,
        "use_beta_sigmoid_in_kernel": True}
    if state_v_first and initial_state is not None:
        initial_state = initial_state.mT
    o, state = gated(q, k, v, g=g, beta=beta, A_log=A_log, dt_bias=dt_bias,
                     scale=1, initial_state=initial_state,
                     output_final_state=output_final_state,
                     cu_seqlens=cu_seqlens)
    return o, state.mT if state_v_first and state is not None else state


def plain_rule(q, k, v, g, beta, A_log, dt_bias, **_):
    """flash-linear-attention's own plain PyTorch, with the gates before it."""
    q, k = (torch.nn.functional.normalize(t.float(), dim=-1) for t in (q, k))
    g = -A_log.exp() * torch.nn.functional.softplus(g.float() + dt_bias)
    o, _ = naive_recurrent_gated_delta_rule(q, k, v, beta.sigmoid(), g)
    return o.to(v.dtype), None


def run(layer, x):
    """The output, and the gradients by name: of x and of the parameters."""
    x = x.detach().requires_grad_()
    layer.zero_grad(set_to_none=True)
    y = layer(x)[0]
    y.float().square().mean().backward()
    return y.detach(), dict(x=x.grad, **{
        name: p.grad for name, p in layer.named_parameters()})


def apart(a, b):
    a, b = a.double(), b.double()
    return float((a - b).norm() / b.norm())


def compare(module, name, called, rule, plain=None, **options):
    """Their layer with their rule, then with this one. plain: where their
    kernels have no gradients."""
    torch.manual_seed(0)
    layer = getattr(module, name)(hidden_size=512, num_heads=4, **options)
    layer = layer.to("cuda", torch.bfloat16).train()
    x = torch.randn(2, 1000, 512, device="cuda", dtype=torch.bfloat16)
    theirs = getattr(module, called)

    def swapped(rule, f):
        setattr(module, called, rule)
        try:
            return f(layer, x)
        finally:
            setattr(module, called, theirs)

    y, grads = swapped(rule, run)
    try:
        want, exact = swapped(theirs, run)
    except RuntimeError as e:   # on some versions of Triton
        print(f"{name}: flash-linear-attention's kernel refuses gradients:\n"
              f"  {e}\n  they are compared with its plain PyTorch instead")
        with torch.no_grad():
            want = layer(x)[0]
        _, exact = swapped(plain, run)
    print(f"{name}: output {apart(y, want):.1e} apart")
    for key, grad in exact.items():
        print(f"  d {key:20} {apart(grads[key], grad):.1e}")
    worst = max(apart(grads[key], g) for key, g in exact.items())
    return apart(y, want) < 0.01 and worst < 0.03


good, layers = True, sys.argv[2:] or ["DeltaNet", "GatedDeltaNet"]
if "DeltaNet" in layers:
    good &= compare(delta_net, "DeltaNet", "chunk_delta_rule",
                    flin.load("deltanet"))
if "GatedDeltaNet" in layers:
    good &= compare(gated_deltanet, "GatedDeltaNet", "chunk_gated_delta_rule",
                    gated_rule, plain_rule, head_dim=128, expand_v=1)
print("the same, to the rounding of bfloat16" if good else "NOT THE SAME")
sys.exit(not good)
