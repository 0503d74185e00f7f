local flin = require "flin"
local exp, dot, outer = flin.exp, flin.dot, flin.outer
flin.variant {
  name = "bad", input = { k = "t k", v = "t v" }, state = { S = "k v" },
  step = function (x, s)
    local S = s.S + outer(x.k * expp(x.k), x.v)
    return { S = S }, dot(x.k, S)
  end,
}
