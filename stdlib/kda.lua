-- Kimi delta attention (Kimi Team, 2025, arXiv:2510.26692): the gated delta
-- rule with a gate for every key channel.
local flin = require "flin"
local exp, dot, outer = flin.exp, flin.dot, flin.outer

return flin.variant {
  name  = "kda",
  input = { q = "t k", k = "t k : unit_norm", v = "t v",
            g = "t k : log_decay", beta = "t : unit" },
  state = { S = "k v" },
  step  = function (x, s)
    local S = exp(x.g) * s.S
    S = S + outer(x.beta * x.k, x.v - dot(x.k, S))
    return { S = S }, dot(x.q, S)
  end,
}
