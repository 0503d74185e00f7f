local flin = require "flin"
return flin.variant {
  name = "bad",
  mask = function (i, j, p)
    if i < j then return 0.5 end
    return 1
  end,
}
