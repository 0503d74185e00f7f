local flin = require "flin"
local v = flin.variant {
  name  = "squared",
  input = { q = "t k", k = "t k", v = "t v" },
  state = { S = "k v" },
  step  = function (x, s)
    local S = s.S * s.S + flin.outer(x.k, x.v)
    return { S = S }, flin.dot(x.q, S)
  end,
}
error(tostring(v:plan { K = 16, V = 16 }):match "token by token: [^\n]*", 0)
