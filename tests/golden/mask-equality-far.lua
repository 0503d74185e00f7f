local flin = require "flin"
return flin.variant {
  name = "bad",
  mask = function (i, j, p)
    if i < j then return 0 end
    if i - j == 4000 then
      return 2
    end
    return flin.exp(p.g_cumsum[i] - p.g_cumsum[j])
  end,
}
