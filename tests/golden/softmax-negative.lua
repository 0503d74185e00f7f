local flin = require "flin"
return flin.variant { name = "mine", normalise = "softmax",
  mask = function (i, j)
    if i < j then return 0 end
    return -1
  end }
