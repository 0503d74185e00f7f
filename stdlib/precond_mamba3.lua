-- Preconditioned Mamba-3 (arXiv:2603.15569): with the diagonal covariance of
-- test-time regression (Wang et al., 2025, arXiv:2501.12352). A sums the
-- squares of the keys as S sums the keys; P is 1/A, relative to its mean.
local flin = require "flin"
local exp, mean, tanh = flin.exp, flin.mean, flin.tanh
local dot, outer = flin.dot, flin.outer
local prev, rotate, pi = flin.prev, flin.rotate, math.pi

return flin.variant {
  name  = "precond_mamba3",
  input = { C = "t k", B = "t k", x = "t v", dt = "t : positive",
            A_log = "", lambda = "t : unit", theta = "t p", D = "" },
  state = { S = "k v", A = "k", phi = "p : angle" },
  initial = { A_log = flin.initial.log_rates(), D = 1, theta = 0 },
  step  = function (x, s)
    local phi = s.phi + pi * tanh(x.theta) * x.dt
    local q, k = rotate(x.C, phi), rotate(x.B, phi)
    local k0, v0 = rotate(prev(x.B), s.phi), prev(x.x)
    local alpha = exp(-exp(x.A_log) * x.dt)
    local w0, w = (1 - x.lambda) * x.dt * alpha, x.lambda * x.dt
    local A = alpha * s.A + w0 * k0^2 + w * k^2
    local P = 1 / (A / (mean(A) + 1e-6) + 0.03)
    local S = alpha * s.S + outer(w0 * P * k0, v0) + outer(w * P * k, x.x)
    return { S = S, A = A, phi = phi }, dot(q, S) + x.D * x.x
  end,
}
