local flin = require "flin"
return flin.variant {
  name  = "bad",
  input = { q = "t k", k = "t k", v = "t v" },
  state = { z = "" },
  step  = function (x, s)
    return { z = x.k }, x.q
  end,
}
