local flin = require "flin"
return flin.variant {
  name = "bad",
  input = { a = "t", b = "t" },
  mask = function (i, j, p)
    if i < j then return 0 end
    return p.a[j]
  end,
}
