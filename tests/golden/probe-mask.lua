local flin = require "flin"
flin.variant {
  mask = function (i, j, p)
    if i < j then return 0 end
    return flin.exp(flin.probe("g", p.g_cumsum[i]) - p.g_cumsum[j])
  end,
}
