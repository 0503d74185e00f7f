-- DeltaNet (Yang et al., 2024, arXiv:2406.06484) with R corrections a token
-- made at once, as Mamba-3's MIMO writes; the sum of beta stays below 2.
local flin = require "flin"
local dot = flin.dot

return flin.variant {
  name  = "mimo_deltanet",
  axes  = { r = 4 },
  input = { q = "t k", k = "t r k : unit_norm", v = "t r v",
            beta = "t r : unit" },
  state = { S = "k v" },
  step  = function (x, s)
    local error = x.v - dot(x.k, s.S, "k")
    local S = s.S + dot(x.beta * x.k, error, "r")
    return { S = S }, dot(x.q, S)
  end,
}
