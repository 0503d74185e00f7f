-- HGRN2 (Qin et al., COLM 2024, arXiv:2404.07904): what is forgotten is
-- what may be written.
local flin = require "flin"
local exp, dot, outer = flin.exp, flin.dot, flin.outer

return flin.variant {
  name  = "hgrn2",
  input = { q = "t k", v = "t v", g = "t k : log_decay" },
  state = { S = "k v" },
  step  = function (x, s)
    local f = exp(x.g)
    local S = f * s.S + outer(1 - f, x.v)
    return { S = S }, dot(x.q, S)
  end,
}
