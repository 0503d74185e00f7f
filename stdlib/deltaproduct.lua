-- Gated DeltaProduct (Siems et al., 2025, arXiv:2502.10297): n delta steps
-- a token, with the decay before the first.
local flin = require "flin"
local exp, dot, outer, at = flin.exp, flin.dot, flin.outer, flin.at
local steps = 2

return flin.variant {
  name  = "deltaproduct",
  axes  = { n = steps },
  input = { q = "t k", k = "t n k : unit_norm", v = "t n v",
            g = "t : log_decay", beta = "t n : unit" },
  state = { S = "k v" },
  step  = function (x, s)
    local S = exp(x.g) * s.S
    for j = 1, steps do
      local k, v = at(x.k, "n", j), at(x.v, "n", j)
      S = S + outer(at(x.beta, "n", j) * k, v - dot(k, S))
    end
    return { S = S }, dot(x.q, S)
  end,
}
