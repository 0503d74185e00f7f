local flin = require "flin"
return flin.variant {
  name = "bad",
  mask = function (i, j, p)
    if i < j then return 0 end
    return flin.sin(p.a[i] * p.b[j])
  end,
}
