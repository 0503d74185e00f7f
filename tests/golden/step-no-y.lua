local flin = require "flin"
return flin.variant {
  name  = "bad",
  input = { q = "t k", k = "t k", v = "t v" },
  state = { S = "k v" },
  step  = function (x, s)
    local S = s.S + flin.outer(x.k, x.v)
    return { S = S }
  end,
}
