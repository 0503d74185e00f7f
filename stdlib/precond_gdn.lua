-- Preconditioned Gated DeltaNet (Tumma, Loo, Rus, 2026, arXiv:2604.21100).
-- A runs over the squares of the keys; what is written goes through M.
-- strength is log 1.5 there, center near the mean of log A.
local flin = require "flin"
local exp, log, abs = flin.exp, flin.log, flin.abs
local dot, outer = flin.dot, flin.outer

return flin.variant {
  name  = "precond_gdn",
  input = { q = "t k", k = "t k : unit_norm", v = "t v",
            g = "t : log_decay", beta = "t : unit",
            g_atk = "t : log_decay", beta_atk = "t : unit",
            center = "", strength = ": unit" },
  state = { S = "k v", A = "k" },
  initial = { center = -0.2, strength = math.log(1.5) },
  step  = function (x, s)
    local A = exp(x.g_atk) * s.A + x.beta_atk * x.k^2
    local r = log(A + 1e-6) - x.center
    local M = exp(-x.strength * r / (1 + abs(r)))
    local S = exp(x.g) * s.S
    S = S + outer(x.beta * M * x.k, x.v - dot(x.k, S))
    return { S = S, A = A }, dot(x.q, S)
  end,
}
