local flin = require "flin"
local dot = flin.dot
flin.layer {
  input = { k = "t g h k", v = "t g h v" },
  weight = {},
  forward = function (x, w)
    return flin.stdlib.linear { q = x.k, k = x.k, v = x.v }
  end,
}
