-- What passes between states that stand in each other differs along the axis
-- that the reads leave.
local flin = require "flin"
local v = flin.variant {
  name  = "momentum",
  input = { q = "t k", k = "t k", v = "t v", mu = "t v : unit", a = "t" },
  state = { S = "k v", M = "k v" },
  step  = function (x, s)
    local write = flin.outer(x.k, x.v - flin.dot(x.k, s.S))
    local M = x.mu * s.M + write
    local S = x.a * s.S - 0.1 * M
    return { S = S, M = M }, flin.dot(x.q, S)
  end,
}
error(v.form, 0)
