local flin = require "flin"
flin.variant {
  name = "bad",
  input = { q = "t k-1" },
  step = function (x) return {}, x.q end,
}
