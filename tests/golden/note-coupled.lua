-- What passes between states that stand in each other: a number of the token.
local flin = require "flin"
local v = flin.variant {
  name  = "momentum",
  input = { q = "t k", k = "t k", v = "t v", mu = "t k : unit", a = "t" },
  state = { S = "k v", M = "k v" },
  step  = function (x, s)
    local M = x.mu * s.M + flin.outer(x.k, x.v)
    local S = x.a * s.S - 0.1 * M
    return { S = S, M = M }, flin.dot(x.q, S)
  end,
}
error(v.form, 0)
