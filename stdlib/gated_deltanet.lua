-- Gated DeltaNet (Yang, Kautz, Hatamizadeh, ICLR 2025, arXiv:2412.06464):
-- forget, erase what the key holds, write the value.
local flin = require "flin"
local exp, dot, outer = flin.exp, flin.dot, flin.outer

return flin.variant {
  name  = "gated_deltanet",
  input = { q = "t k", k = "t k : unit_norm", v = "t v",
            g = "t : log_decay", beta = "t : unit" },
  state = { S = "k v" },
  step  = function (x, s)
    local S = exp(x.g) * s.S
    S = S + outer(x.beta * x.k, x.v - dot(x.k, S))
    return { S = S }, dot(x.q, S)
  end,
}
