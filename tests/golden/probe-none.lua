local flin = require "flin"
local dot, outer = flin.dot, flin.outer
local v = flin.variant {
  input = { q = "t k", k = "t k", v = "t v" },
  state = { S = "k v" },
  step = function (x, s)
    local S = s.S + outer(x.k, x.v)
    return { S = S }, dot(x.q, S)
  end,
}
v:probe(v:random { T = 4 })
