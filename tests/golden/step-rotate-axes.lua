local flin = require "flin"
return flin.variant {
  name  = "bad",
  input = { q = "t k", v = "t a b" },
  state = { S = "k v" },
  step  = function (x, s)
    return { S = s.S }, flin.rotate(x.q, x.v)
  end,
}
