-- A step that is another one each time.
local flin = require "flin"

flin.variant {
  input = { q = "t k", k = "t k", v = "t v" },
  state = { S = "k v" },
  step = function (x, s)
    local S = s.S + flin.outer(x.k, x.v)
    if math.random(1000000) == 1 then S = s.S end
    return { S = S }, flin.dot(x.q, S)
  end,
}
