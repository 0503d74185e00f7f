local flin = require "flin"
flin.variant {
  name = "bad",
  input = { q = "t k" },
  step = function (x) return {}, x.q end,
  mask = function (i, j, p) return 1 end,
}
