-- Of a block, the term that is not linear in it.
local flin = require "flin"
local v = flin.variant {
  name  = "momentum",
  input = { q = "t k", k = "t k", v = "t v", mu = "t", a = "t" },
  state = { S = "k v", M = "k v" },
  step  = function (x, s)
    local grad = x.v - flin.tanh(flin.dot(x.k, s.S))
    local M = x.mu * s.M + flin.outer(x.k, grad)
    local S = x.a * s.S + M
    return { S = S, M = M }, flin.dot(x.q, S)
  end,
}
error(v.form, 0)
