local flin = require "flin"
return flin.variant {
  name = "bad",
  mask = function (i, j, p)
    if i < j then return 0 end
    return p.a[j], 2 * p.a[j]
  end,
}
