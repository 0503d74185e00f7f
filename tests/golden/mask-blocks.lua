local flin = require "flin"
return flin.variant {
  name = "bad",
  mask = function (i, j)
    if i < j then return 0 end
    if i // 4 > j // 6 + 1 then return 1 end
    return 0
  end,
}
