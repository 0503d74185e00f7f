-- Lightning Attention-2 (Qin et al., 2024, arXiv:2401.04658).
-- g = -8 (head / heads) (1 - layer / layers), the same for every token.
local flin = require "flin"
local exp, silu, dot, outer = flin.exp, flin.silu, flin.dot, flin.outer

return flin.variant {
  name  = "lightning",
  input = { q = "t k", k = "t k", v = "t v", g = ": log_decay" },
  state = { S = "k v" },
  initial = { g = function (at) return -8 * at.h / at.size.h end },
  step  = function (x, s)
    local q, k = silu(x.q), silu(x.k)
    local S = exp(x.g) * s.S + outer(k, x.v)
    return { S = S }, dot(q, S)
  end,
}
