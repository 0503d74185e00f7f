local flin = require "flin"
flin.variant {
  name = "bad",
  axes = { n = 0 },
  input = { q = "t n" },
  step = function (x) return {}, x.q end,
}
