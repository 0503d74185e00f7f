local flin = require "flin"
return flin.variant {
  name  = "bad",
  input = { q = "t k", k = "t k", v = "t v" },
  state = { S = "k v" },
  step  = function (x, s)
    return { S = s.S }, x.q // 2
  end,
}
