local flin = require "flin"
local dot = flin.dot
flin.layer {
  input = { x = "t d" },
  weight = { W = "d h e" },
  forward = function (x, w)
    local u = dot(x.x, w.W)
    return flin.stdlib.linear { q = u, k = u, v = u }
  end,
}
