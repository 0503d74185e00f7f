-- Momentum DeltaNet (Huang et al., ICML 2026, arXiv:2605.05838): the delta
-- rule as a gradient step with momentum. M holds the steps, mu is how much of
-- them goes on; the feedback p reads S before its decay (there p = exp(g) k);
-- beta is the step's size, eta the gradient's; beta eta / (1 - exp(mu)) is
-- what a gradient is worth in the end, and begins below 1.
local flin = require "flin"
local exp, dot, outer = flin.exp, flin.dot, flin.outer

return flin.variant {
  name  = "momentum_deltanet",
  input = { q = "t k", k = "t k : unit_norm", v = "t v",
            p = "t k : unit_norm", g = "t : log_decay", mu = "t : log_decay",
            beta = "t : unit", eta = "t : unit" },
  state = { S = "k v", M = "k v" },
  initial = { mu = -0.1, eta = 0.1 },
  step  = function (x, s)
    local M = exp(x.mu) * s.M - outer(x.eta * x.k, x.v - dot(x.p, s.S))
    local S = exp(x.g) * s.S - x.beta * M
    return { S = S, M = M }, dot(x.q, S)
  end,
}
