local flin = require "flin"
local dot = flin.dot
flin.layer {
  input = { x = "t d" },
  weight = { x = "d" },
  forward = function (x, w)
    return x.x * w.x
  end,
}
