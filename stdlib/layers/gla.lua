-- The layer of gated linear attention (Yang et al., ICML 2024,
-- arXiv:2312.06635): a gate for each key of low rank, a norm of each head, a
-- gate, and the way out.
local flin = require "flin"
local dot, silu = flin.dot, flin.silu

return flin.layer {
  name   = "gla_layer",
  input  = { x = "t d" },
  weight = { Wq = "d h k", Wk = "d h k", Wv = "d h v", Wg = "d h v",
             Wr = "d r", Wa = "r h k", a = "h k", norm = "v", Wo = "h v d" },
  usual   = { k = function (size) return size.d / size.h / 2 end,
              v = function (size) return size.d / size.h end, r = 16 },
  initial = { norm = 1, a = 0 },
  forward = function (x, w)
    local gate = dot(dot(x.x, w.Wr), w.Wa) + w.a
    local q = dot(x.x, w.Wq)
    local y = flin.stdlib.gla {
      q = q * flin.rsqrt(flin.size(q, "k")), k = dot(x.x, w.Wk),
      v = dot(x.x, w.Wv), g = flin.logsigmoid(gate) / 16
    }
    y = flin.rms_norm(y, "v") * w.norm * silu(dot(x.x, w.Wg))
    return dot(y, w.Wo)
  end,
}
