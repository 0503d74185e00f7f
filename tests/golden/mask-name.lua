local flin = require "flin"
return flin.variant {
  name = "bad",
  mask = function (i, j, p)
    if i < j then return 0 end
    return p.save[j]
  end,
}
