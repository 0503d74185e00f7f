local flin = require "flin"
local dot = flin.dot
flin.layer {
  input = { x = "t d" },
  weight = { s = "d" },
  forward = function (x, w)
    return w.s
  end,
}
