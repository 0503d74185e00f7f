-- Titans' memory (Behrouz et al., 2024, arXiv:2501.00663), a matrix: a gradient
-- step theta on |v - S^T k|^2 / 2, with momentum eta and forgetting alpha.
local flin = require "flin"
local dot, outer = flin.dot, flin.outer

return flin.variant {
  name  = "titans",
  input = { q = "t k", k = "t k : unit_norm", v = "t v", theta = "t : unit",
            alpha = "t : unit", eta = "t : unit" },
  state = { S = "k v", M = "k v" },
  step  = function (x, s)
    local M = x.eta * s.M + outer(x.theta * x.k, x.v - dot(x.k, s.S))
    local S = (1 - x.alpha) * s.S + M
    return { S = S, M = M }, dot(x.q, S)
  end,
}
