local flin = require "flin"
local dot = flin.dot
flin.layer {
  input = { x = "t d" },
  weight = { W = "t d k" },
  forward = function (x, w)
    return dot(x.x, w.W)
  end,
}
