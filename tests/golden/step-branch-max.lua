local flin = require "flin"
return flin.variant {
  name  = "bad",
  input = { q = "t k", g = "t" },
  state = { S = "k v" },
  step  = function (x, s)
    local S = s.S * math.max(x.g, 0)
    return { S = S }, flin.dot(x.q, S)
  end,
}
