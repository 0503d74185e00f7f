local flin = require "flin"
local dot = flin.dot
flin.layer {
  input = { x = "t d" },
  weight = { c = "d" },
  forward = function (x, w)
    return flin.conv(x.x, w.c)
  end,
}
