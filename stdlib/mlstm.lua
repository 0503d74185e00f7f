-- mLSTM of xLSTM (Beck et al., NeurIPS 2024, arXiv:2405.04517).
-- f and i are the gates before their activations; m keeps exp in range.
local flin = require "flin"
local exp, abs, max = flin.exp, flin.abs, flin.max
local dot, outer, logsigmoid = flin.dot, flin.outer, flin.logsigmoid

return flin.variant {
  name  = "mlstm",
  input = { q = "t k", k = "t k", v = "t v", i = "t", f = "t" },
  state = { C = "k v", n = "k", m = "" },
  step  = function (x, s)
    local f = logsigmoid(x.f) + s.m
    local m = max(f, x.i)
    local decay, write = exp(f - m), exp(x.i - m)
    local C = decay * s.C + outer(write * x.k, x.v)
    local n = decay * s.n + write * x.k
    local h = dot(x.q, C) / (max(abs(dot(x.q, n)), exp(-m)) + 1e-6)
    return { C = C, n = n, m = m }, h
  end,
}
