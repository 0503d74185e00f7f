local flin = require "flin"
flin.variant {
  name = 7,
  input = { q = "t k" },
  step = function (x) return {}, x.q end,
}
