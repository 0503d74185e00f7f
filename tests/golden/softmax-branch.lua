local flin = require "flin"
return flin.variant { name = "mine", normalise = "softmax",
  score = function (s, i, j)
    if j == 3 then return 0 end
    return s
  end }
