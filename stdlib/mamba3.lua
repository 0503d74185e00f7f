-- Mamba-3 (Lahoti et al., ICLR 2026, arXiv:2603.15569): trapezoidal rule,
-- complex states as data-dependent rope. C and B come with norm and bias.
local flin = require "flin"
local exp, dot, outer, tanh = flin.exp, flin.dot, flin.outer, flin.tanh
local prev, rotate, pi = flin.prev, flin.rotate, math.pi

return flin.variant {
  name  = "mamba3",
  input = { C = "t k", B = "t k", x = "t v", dt = "t : positive",
            A_log = "", lambda = "t : unit", theta = "t p", D = "" },
  state = { S = "k v", phi = "p : angle" },
  initial = { A_log = flin.initial.log_rates(), D = 1, theta = 0 },
  step  = function (x, s)
    local phi = s.phi + pi * tanh(x.theta) * x.dt
    local q, k = rotate(x.C, phi), rotate(x.B, phi)
    local k0, v0 = rotate(prev(x.B), s.phi), prev(x.x)
    local alpha = exp(-exp(x.A_log) * x.dt)
    local S = alpha * s.S
            + outer((1 - x.lambda) * x.dt * alpha * k0, v0)
            + outer(x.lambda * x.dt * k, x.x)
    return { S = S, phi = phi }, dot(q, S) + x.D * x.x
  end,
}
