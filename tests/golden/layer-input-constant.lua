local flin = require "flin"
local dot = flin.dot
flin.layer {
  input = { x = "t d", s = "d" },
  weight = {},
  forward = function (x, w)
    return x.x * x.s
  end,
}
