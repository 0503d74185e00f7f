-- The layer of Mamba-2 (Dao & Gu, ICML 2024, arXiv:2405.21060), with one group:
-- keys and queries (B and C) are shared by all heads; the norm is over all of
-- them, behind the gate.
local flin = require "flin"
local dot, conv, silu = flin.dot, flin.conv, flin.silu

return flin.layer {
  name   = "mamba2_layer",
  input  = { x = "t d" },
  weight = { Wz = "d h v", Wx = "d h v", WB = "d k", WC = "d k", Wdt = "d h",
             cx = "h v w", cB = "k w", cC = "k w",
             bx = "h v", bB = "k", bC = "k",
             A_log = "h", dt = "h", D = "h", norm = "h v", Wo = "h v d" },
  usual   = { h = function (size) return size.d / 32 end, k = 128,
              v = function (size) return 2 * size.d / size.h end },
  initial = { A_log = flin.initial.log_rates(), dt = flin.initial.steps(),
              D = 1, norm = 1 },
  forward = function (x, w)
    local y = flin.stdlib.mamba2 {
      x = silu(conv(dot(x.x, w.Wx), w.cx) + w.bx),
      B = silu(conv(dot(x.x, w.WB), w.cB) + w.bB),
      C = silu(conv(dot(x.x, w.WC), w.cC) + w.bC),
      dt = flin.softplus(dot(x.x, w.Wdt) + w.dt), A_log = w.A_log, D = w.D
    }
    y = flin.rms_norm(y * silu(dot(x.x, w.Wz)), "h v") * w.norm
    return dot(y, w.Wo)
  end,
}
