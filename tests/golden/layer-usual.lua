local flin = require "flin"
local dot = flin.dot
return flin.layer {
  input   = { x = "t d" },
  weight  = { W = "d k" },
  usual   = { k = "d / 2" },
  forward = function (x, w) return dot(x.x, w.W) end,
}
