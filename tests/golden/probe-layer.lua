local flin = require "flin"
flin.layer {
  input = { x = "t d" },
  weight = { W = "d e" },
  forward = function (x, w)
    return flin.probe("y", flin.dot(x.x, w.W))
  end,
}
