local flin = require "flin"
return flin.variant {
  name = "bad",
  mask = function (i, j, p)
    if i < j or p.seg[i] ~= p.seg[j] then return 0 end
    return 1
  end,
}
