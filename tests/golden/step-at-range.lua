local flin = require "flin"
return flin.variant {
  name  = "bad",
  input = { u = "t n k" },
  state = { S = "k v" },
  step  = function (x, s)
    return { S = s.S }, flin.at(x.u, "n", 3)
  end,
  axes  = { n = 2 },
}
