-- Mamba-2, state space duality (Dao & Gu, ICML 2024, arXiv:2405.21060).
local flin = require "flin"
local exp, dot, outer = flin.exp, flin.dot, flin.outer

return flin.variant {
  name  = "mamba2",
  input = { C = "t k", B = "t k", x = "t v", dt = "t : positive",
            A_log = "", D = "" },
  state = { S = "k v" },
  initial = { A_log = flin.initial.log_rates(), D = 1 },
  step  = function (x, s)
    local A = -exp(x.A_log)
    local S = exp(A * x.dt) * s.S + outer(x.B, x.dt * x.x)
    return { S = S }, dot(x.C, S) + x.D * x.x
  end,
}
