local flin = require "flin"
return flin.variant {
  name = "bad",
  mask = function (i, j, p)
    if i < j then return 0 end
    if flin.lt(p.g[j], 0) then return p.g[j] end
    return 1
  end,
}
