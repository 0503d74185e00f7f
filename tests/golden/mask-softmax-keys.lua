local flin = require "flin"
return flin.variant {
  name = "bad", normalise = "softmax",
  input = { g = "t k : log_decay" },
  mask = function (i, j, p)
    if i < j then return 0 end
    return flin.exp(p.g_cumsum[i] - p.g_cumsum[j])
  end,
}
