local flin = require "flin"
flin.variant {
  name = "bad",
  inputs = { q = "t k" },
  step = function (x) return {}, x.q end,
}
