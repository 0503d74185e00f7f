-- A size for an axis that nothing has.
local flin = require "flin"
flin.variant {
  name  = "typed_wrong",
  axes  = { m = 2 },
  input = { q = "t k", k = "t n k", v = "t n v" },
  state = { S = "k v" },
  step  = function (x, s)
    local S = s.S + flin.dot(x.k, x.v, "n")
    return { S = S }, flin.dot(x.q, S)
  end,
}
