local flin = require "flin"
local weight = { [70] = 3 }
return flin.variant {
  name = "bad",
  mask = function (i, j, p)
    if i < j then return 0 end
    return weight[j] or 1
  end,
}
