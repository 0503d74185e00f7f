local flin = require "flin"
return flin.variant {
  name = "bad",
  mask = function (i, j, p)
    return "decay"
  end,
}
