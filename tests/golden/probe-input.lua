local flin = require "flin"
local dot, outer = flin.dot, flin.outer
flin.variant {
  input = { q = "t k", k = "t k", v = "t v" },
  state = { S = "k v" },
  step = function (x, s)
    local S = s.S + outer(x.k, x.v)
    flin.probe("k", 2 * x.k)
    return { S = S }, dot(x.q, S)
  end,
}
