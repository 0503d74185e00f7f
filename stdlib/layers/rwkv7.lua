-- The layer of RWKV-7 (Peng et al., 2025, arXiv:2503.14456), a model's first:
-- each projection has its own mixture of the token and the one before; decay,
-- step and gate are of low rank; what a token says of itself goes by the state.
local flin = require "flin"
local dot, sigmoid = flin.dot, flin.sigmoid
local mixed, channels = flin.initial.falling, flin.initial.channels

return flin.layer {
  name    = "rwkv7_layer",
  input   = { x = "t d" },
  weight  = { mr = "d", mw = "d", mk = "d", mv = "d", ma = "d", mg = "d",
              Wr = "d h k", Wk = "d h k", Wv = "d h v", Ww = "d e",
              Vw = "e h k", w0 = "h k", Wa = "d f", Va = "f h k", a0 = "h k",
              Wg = "d g", Vg = "g h v", k_k = "h k", k_a = "h k", r_k = "h k",
              norm = "h v", bias = "h v", Wo = "h v d" },
  usual   = { h = function (size) return size.d / 64 end, e = 64, f = 64,
              k = function (size) return size.d / size.h end, g = 128 },
  initial = { mr = mixed(0.2), mw = mixed(0.9), mk = mixed(0.7),
              mv = mixed(0.7), ma = mixed(0.9), mg = mixed(0.2),
              w0 = channels { -5.5, 0.5, zigzag = 2.5 },
              a0 = channels { -0.39, 0.01, zigzag = 0.3 },
              k_k = channels { 0.76, 0.66 }, k_a = 1.02, r_k = -0.04,
              norm = 1, bias = 0, Ww = 0, Wa = 0, Wg = 0, Wo = 0 },
  forward = function (x, w)
    local shift = flin.prev(x.x) - x.x
    local function mix(m, W) return dot(x.x + shift * m, W) end
    local r, k, v = mix(w.mr, w.Wr), mix(w.mk, w.Wk), mix(w.mv, w.Wv)
    local decay = sigmoid(dot(flin.tanh(mix(w.mw, w.Ww)), w.Vw) + w.w0)
    local a = sigmoid(dot(mix(w.ma, w.Wa), w.Va) + w.a0)
    local kappa = flin.unit_norm(k * w.k_k, "k")
    k = k + k * (a - 1) * w.k_a
    local y = flin.stdlib.rwkv7 { r = r, k = k, v = v, kappa = kappa, a = a,
                                  w = -math.exp(-0.5) * decay }
    y = y - flin.mean(y, "v")
    local spread = flin.mean(y * y, "v") + flin.size(y, "v") * 1e-5
    y = y * flin.rsqrt(spread) * w.norm + w.bias
        + flin.sum(r * k * w.r_k, "k") * v
    return dot(y * dot(sigmoid(mix(w.mg, w.Wg)), w.Vg), w.Wo)
  end,
}
