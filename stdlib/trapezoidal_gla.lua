-- GLA with a gate a head (Yang et al., 2024, arXiv:2312.06635) under the
-- trapezoidal rule of Mamba-3: second order in the step, states stay real.
local flin = require "flin"
local exp, dot, outer, prev = flin.exp, flin.dot, flin.outer, flin.prev

return flin.variant {
  name  = "trapezoidal_gla",
  input = { q = "t k", k = "t k", v = "t v", g = "t : log_decay",
            lambda = "t : unit" },
  state = { S = "k v" },
  step  = function (x, s)
    local alpha = exp(x.g)
    local S = alpha * s.S
            + outer((1 - x.lambda) * alpha * prev(x.k), prev(x.v))
            + outer(x.lambda * x.k, x.v)
    return { S = S }, dot(x.q, S)
  end,
}
