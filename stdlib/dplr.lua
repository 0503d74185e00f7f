-- Diagonal plus low rank (Peng et al., COLM 2025, arXiv:2503.14456): RWKV-7's
-- transition with any a and b. S is read by a before it decays.
local flin = require "flin"
local exp, dot, outer = flin.exp, flin.dot, flin.outer

return flin.variant {
  name  = "dplr",
  input = { q = "t k", k = "t k", v = "t v", a = "t k : unit_norm",
            b = "t k : unit_norm", gk = "t k : log_decay" },
  state = { S = "k v" },
  step  = function (x, s)
    local S = exp(x.gk) * s.S + outer(x.b, dot(x.a, s.S)) + outer(x.k, x.v)
    return { S = S }, dot(x.q, S)
  end,
}
