local flin = require "flin"
flin.layer {
  input = { x = "t d", c = "t d w" },
  weight = {},
  forward = function (x, w)
    return flin.conv(x.x, x.c)
  end,
}
