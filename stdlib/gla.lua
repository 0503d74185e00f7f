-- Gated linear attention (Yang et al., ICML 2024, arXiv:2312.06635).
local flin = require "flin"
local exp, dot, outer = flin.exp, flin.dot, flin.outer

return flin.variant {
  name  = "gla",
  input = { q = "t k", k = "t k", v = "t v", g = "t k : log_decay" },
  state = { S = "k v" },
  step  = function (x, s)
    local S = exp(x.g) * s.S + outer(x.k, x.v)
    return { S = S }, dot(x.q, S)
  end,
}
