-- RWKV-6, Finch (Peng et al., COLM 2024, arXiv:2404.05892).
-- w is the log of the decay; u is the bonus of the token itself.
local flin = require "flin"
local exp, dot, outer = flin.exp, flin.dot, flin.outer

return flin.variant {
  name  = "rwkv6",
  input = { r = "t k", k = "t k", v = "t v", w = "t k : log_decay", u = "k" },
  state = { S = "k v" },
  initial = { u = function (at)
    return (((at.h - 1) * at.size.k + at.k) % 3 - 1) * 0.1
  end },
  step  = function (x, s)
    local y = dot(x.r, s.S) + dot(x.r, x.u * x.k) * x.v
    local S = exp(x.w) * s.S + outer(x.k, x.v)
    return { S = S }, y
  end,
}
