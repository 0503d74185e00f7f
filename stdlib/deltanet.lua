-- DeltaNet (Yang et al., NeurIPS 2024, arXiv:2406.06484).
local flin = require "flin"
local dot, outer = flin.dot, flin.outer

return flin.variant {
  name  = "deltanet",
  input = { q = "t k", k = "t k : unit_norm", v = "t v", beta = "t : unit" },
  state = { S = "k v" },
  step  = function (x, s)
    local S = s.S + outer(x.beta * x.k, x.v - dot(x.k, s.S))
    return { S = S }, dot(x.q, S)
  end,
}
