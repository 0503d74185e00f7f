-- RWKV-7, Goose (Peng et al., 2025, arXiv:2503.14456). w is the log of the
-- decay (the paper's: -e^(-1/2) sigmoid); kappa removes, a says how much.
local flin = require "flin"
local exp, dot, outer = flin.exp, flin.dot, flin.outer

return flin.variant {
  name  = "rwkv7",
  input = { r = "t k", k = "t k : unit_norm", v = "t v",
            w = "t k : log_decay", kappa = "t k : unit_norm",
            a = "t k : unit" },
  state = { S = "k v" },
  step  = function (x, s)
    local S = exp(x.w) * s.S
            - outer(x.a * x.kappa, dot(x.kappa, s.S))
            + outer(x.k, x.v)
    return { S = S }, dot(x.r, S)
  end,
}
