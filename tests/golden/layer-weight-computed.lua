local flin = require "flin"
local dot = flin.dot
flin.layer {
  input = { x = "t d" },
  weight = { W = "d k", s = "k" },
  forward = function (x, w)
    return dot(x.x, flin.exp(w.W * w.s))
  end,
}
