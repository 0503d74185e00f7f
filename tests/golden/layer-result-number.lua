local flin = require "flin"
local dot = flin.dot
flin.layer {
  input = { x = "t d" },
  weight = {},
  forward = function (x, w)
    return 2
  end,
}
