-- Oja's rule (Oja, J. Math. Biology 1982, doi:10.1007/BF00275687) with a gate:
-- forget each value channel, then learn the key of a value as the delta rule
-- learns the value of a key.
local flin = require "flin"
local exp, dot, outer = flin.exp, flin.dot, flin.outer

return flin.variant {
  name  = "gated_oja",
  input = { q = "t k", k = "t k", v = "t v : unit_norm",
            gv = "t v : log_decay", beta = "t : unit" },
  state = { S = "k v" },
  step  = function (x, s)
    local S = exp(x.gv) * s.S
    S = S + outer(x.beta * (x.k - dot(S, x.v)), x.v)
    return { S = S }, dot(x.q, S)
  end,
}
