local flin = require "flin"
return flin.variant {
  name = "bad",
  input = { w = "v" },
  mask = function (i, j)
    if i < j then return 0 end
    return 1 / (1 + i - j)
  end,
}
