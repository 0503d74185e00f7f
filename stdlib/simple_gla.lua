-- Gated RetNet (Sun et al., 2024, arXiv:2405.05254): GLA (Yang et al., ICML
-- 2024, arXiv:2312.06635) with one gate a head.
local flin = require "flin"
local exp, dot, outer = flin.exp, flin.dot, flin.outer

return flin.variant {
  name  = "simple_gla",
  input = { q = "t k", k = "t k", v = "t v", g = "t : log_decay" },
  state = { S = "k v" },
  step  = function (x, s)
    local S = exp(x.g) * s.S + outer(x.k, x.v)
    return { S = S }, dot(x.q, S)
  end,
}
