local flin = require "flin"
flin.variant {
  input = { k = "t k", v = "t v" },
  step = function (x)
    return {}, flin.stdlib.linear { q = x.k, k = x.k, v = x.v }
  end,
}
