local flin = require "flin"
return flin.variant { name = "mine", normalise = "softmax",
  mask = function (i, j, p)
    if i < j or p.doc[i] ~= p.doc[j] then return 0 end
    return 1
  end }
