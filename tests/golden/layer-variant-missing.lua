local flin = require "flin"
local dot = flin.dot
flin.layer {
  input = { k = "t k" },
  weight = {},
  forward = function (x, w)
    return flin.stdlib.linear { q = x.k, k = x.k }
  end,
}
