local flin = require "flin"
return flin.variant {
  name = "bad",
  mask = function (i, j, p)
    if i < j then return 0 end
    if j == 0 then return 2 end
    return 1
  end,
}
