local flin = require "flin"
flin.variant {
  name = "bad",
  axes = { n = "two" },
  input = { q = "t k" },
  step = function (x) return {}, x.q end,
}
