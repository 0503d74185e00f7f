local flin = require "flin"
local dot = flin.dot
flin.layer {
  input = { x = "t d" },
  weight = { W = "d k" },
  forward = function (x, w)
    return x.x
  end,
}
