-- Linear attention (Katharopoulos et al., ICML 2020, arXiv:2006.16236).
-- q and k are features; no normaliser, as in what has grown from it.
local flin = require "flin"
local dot, outer = flin.dot, flin.outer

return flin.variant {
  name  = "linear",
  input = { q = "t k", k = "t k", v = "t v" },
  state = { S = "k v" },
  step  = function (x, s)
    local S = s.S + outer(x.k, x.v)
    return { S = S }, dot(x.q, S)
  end,
}
