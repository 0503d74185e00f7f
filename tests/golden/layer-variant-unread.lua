local flin = require "flin"
local dot = flin.dot
flin.layer {
  input = { k = "t k", v = "t v" },
  weight = {},
  forward = function (x, w)
    local y = flin.stdlib.linear { q = x.k, k = x.k, v = x.v }
    return x.v
  end,
}
