-- Identity plus low rank: DeltaNet (Yang et al., NeurIPS 2024,
-- arXiv:2406.06484) with any a and b in place of its k and -beta k.
local flin = require "flin"
local dot, outer = flin.dot, flin.outer

return flin.variant {
  name  = "iplr",
  input = { q = "t k", k = "t k", v = "t v", a = "t k : unit_norm",
            b = "t k : unit_norm" },
  state = { S = "k v" },
  step  = function (x, s)
    local S = s.S + outer(x.b, dot(x.a, s.S)) + outer(x.k, x.v)
    return { S = S }, dot(x.q, S)
  end,
}
