local flin = require "flin"
local dot = flin.dot
flin.layer {
  input = { x = "t" },
  weight = {},
  forward = function (x, w)
    if x.x > 0 then return x.x end
    return -x.x
  end,
}
