local flin = require "flin"
return flin.variant {
  name  = "bad",
  input = { q = "t k", g = "t" },
  state = { S = "k v" },
  step  = function (x, s)
    local S = math.exp(x.g) * s.S
    return { S = S }, flin.dot(x.q, S)
  end,
}
