local flin = require "flin"
flin.variant {
  mask = function (i, j, p)
    if i < j then return 0 end
    return flin.where(flin.eq(p.doc[i], p.doc[j]), 1, 0)
  end,
}
