-- Gated DeltaNet-2 (2026, arXiv:2605.22791): erase (b, over keys) and write
-- (w, over values) have gates of their own.
local flin = require "flin"
local exp, dot, outer = flin.exp, flin.dot, flin.outer

return flin.variant {
  name  = "gdn2",
  input = { q = "t k", k = "t k : unit_norm", v = "t v",
            g = "t k : log_decay", b = "t k : unit", w = "t v : unit" },
  state = { S = "k v" },
  step  = function (x, s)
    local S = exp(x.g) * s.S
    S = S + outer(x.k, x.w * x.v - dot(x.b * x.k, S))
    return { S = S }, dot(x.q, S)
  end,
}
