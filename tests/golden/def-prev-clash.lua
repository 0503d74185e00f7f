local flin = require "flin"
flin.variant {
  name = "bad",
  input = { k = "t k" },
  state = { prev_k = "k" },
  step = function (x, s) return { prev_k = x.k }, flin.prev(x.k) end,
}
