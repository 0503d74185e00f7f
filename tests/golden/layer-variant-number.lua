local flin = require "flin"
local dot = flin.dot
flin.layer {
  input = { k = "t k", v = "t v" },
  weight = {},
  forward = function (x, w)
    return flin.stdlib.deltanet { q = x.k, k = x.k, v = x.v, beta = 1 }
  end,
}
