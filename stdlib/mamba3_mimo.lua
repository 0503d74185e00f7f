-- Mamba-3 MIMO (Lahoti et al., ICLR 2026, arXiv:2603.15569): R reads and
-- writes a token, which Wx spreads from x and Wo gathers into y.
local flin = require "flin"
local exp, dot, sum, tanh = flin.exp, flin.dot, flin.sum, flin.tanh
local prev, rotate, pi = flin.prev, flin.rotate, math.pi

return flin.variant {
  name  = "mamba3_mimo",
  axes  = { r = 4 },
  input = { C = "t r k", B = "t r k", x = "t v", dt = "t : positive",
            A_log = "", lambda = "t : unit", theta = "t p",
            Wx = "r v", Wo = "r v", D = "" },
  state = { S = "k v", phi = "p : angle" },
  initial = {
    A_log = flin.initial.log_rates(), D = 1,
    Wx = function (at) return 1 / at.size.r end,
    Wo = function (at) return 1 / at.size.r end,
  },
  step  = function (x, s)
    local phi = s.phi + pi * tanh(x.theta) * x.dt
    local q, k = rotate(x.C, phi, "k"), rotate(x.B, phi, "k")
    local k0, v0 = rotate(prev(x.B), s.phi, "k"), x.Wx * prev(x.x)
    local alpha = exp(-exp(x.A_log) * x.dt)
    local S = alpha * s.S
            + dot((1 - x.lambda) * x.dt * alpha * k0, v0, "r")
            + dot(x.lambda * x.dt * k, x.Wx * x.x, "r")
    return { S = S, phi = phi }, sum(x.Wo * dot(q, S, "k"), "r") + x.D * x.x
  end,
}
