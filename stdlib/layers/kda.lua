-- The layer of Kimi delta attention (Kimi Team, 2025, arXiv:2510.26692):
-- projections, short convolutions, a gate for each key of low rank, the mixing
-- rule, a norm of each head, a gate of low rank, and the way out.
local flin = require "flin"
local dot, conv, silu = flin.dot, flin.conv, flin.silu

return flin.layer {
  name   = "kda_layer",
  input  = { x = "t d" },
  weight = { Wq = "d h k", Wk = "d h k", Wv = "d h v", Wb = "d h",
             cq = "h k w", ck = "h k w", cv = "h v w",
             Wr = "d r", Wa = "r h k", A_log = "h", dt = "h k",
             Ws = "d s", Wg = "s h v", bg = "h v", norm = "v", Wo = "h v d" },
  usual   = { h = function (size) return size.d / 128 end,
              k = function (size) return size.d / size.h end,
              r = function (size) return size.v end,
              s = function (size) return size.v end },
  initial = { A_log = flin.initial.log_rates(), dt = flin.initial.steps(),
              norm = 1 },
  forward = function (x, w)
    local q = silu(conv(dot(x.x, w.Wq), w.cq))
    local k = silu(conv(dot(x.x, w.Wk), w.ck))
    local v = silu(conv(dot(x.x, w.Wv), w.cv))
    local step = flin.softplus(dot(dot(x.x, w.Wr), w.Wa) + w.dt)
    local y = flin.stdlib.kda {
      q = flin.unit_norm(q, "k") * flin.rsqrt(flin.size(q, "k")),
      k = flin.unit_norm(k, "k"), v = v, g = -flin.exp(w.A_log) * step,
      beta = flin.sigmoid(dot(x.x, w.Wb))
    }
    local gate = flin.sigmoid(dot(dot(x.x, w.Ws), w.Wg) + w.bg)
    return dot(flin.rms_norm(y, "v") * w.norm * gate, w.Wo)
  end,
}
