local flin = require "flin"
local dot = flin.dot
flin.layer {
  input = { x = "t d" },
  weight = {},
  forward = function (x, w)
    local y = x.x
  end,
}
