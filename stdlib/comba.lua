-- Comba (Hu et al., 2025, arXiv:2506.02475): closed-loop control. The
-- feedback p reads the state before its decay; d corrects the query.
local flin = require "flin"
local exp, sigmoid, dot, outer = flin.exp, flin.sigmoid, flin.dot, flin.outer

return flin.variant {
  name  = "comba",
  input = { q = "t k", k = "t k : unit_norm", v = "t v",
            g = "t : log_decay", beta = "t : unit", b = "", d = "" },
  state = { S = "k v" },
  initial = { b = 1, d = 1 },
  step  = function (x, s)
    local p = sigmoid(x.b) * x.k
    local S = exp(x.g) * s.S
            + outer(x.beta * x.k, x.v - dot(p, s.S))
    return { S = S }, dot(x.q - x.d * p, S)
  end,
}
