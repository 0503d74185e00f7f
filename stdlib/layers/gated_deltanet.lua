-- The layer of Gated DeltaNet (Yang, Kautz, Hatamizadeh, ICLR 2025,
-- arXiv:2412.06464): projections, short convolutions, the mixing rule, a norm
-- of each head, a gate, and the way out.
local flin = require "flin"
local dot, conv, silu = flin.dot, flin.conv, flin.silu

return flin.layer {
  name   = "gated_deltanet_layer",
  input  = { x = "t d" },
  weight = { Wq = "d h k", Wk = "d h k", Wv = "d h v", Wb = "d h", Wa = "d h",
             Wg = "d h v", cq = "h k w", ck = "h k w", cv = "h v w",
             A_log = "h", dt = "h", norm = "v", Wo = "h v d" },
  usual   = { k = function (size) return 3 * size.d / size.h / 4 end,
              v = function (size) return 2 * size.k end },
  initial = { A_log = flin.initial.log_rates(), dt = flin.initial.steps(),
              norm = 1 },
  forward = function (x, w)
    local q = silu(conv(dot(x.x, w.Wq), w.cq))
    local k = silu(conv(dot(x.x, w.Wk), w.ck))
    local v = silu(conv(dot(x.x, w.Wv), w.cv))
    local g = -flin.exp(w.A_log) * flin.softplus(dot(x.x, w.Wa) + w.dt)
    local beta = flin.sigmoid(dot(x.x, w.Wb))
    local y = flin.stdlib.gated_deltanet {
      q = flin.unit_norm(q, "k") * flin.rsqrt(flin.size(q, "k")),
      k = flin.unit_norm(k, "k"), v = v,
      g = g, beta = beta
    }
    y = flin.rms_norm(y, "v") * w.norm * silu(dot(x.x, w.Wg))
    return dot(y, w.Wo)
  end,
}
