local flin = require "flin"
return flin.variant {
  name = "bad",
  mask = function (i, j, p)
    if i < j then return 0 end
    if p.g[i] < 0 then return 1 end
    return 2
  end,
}
