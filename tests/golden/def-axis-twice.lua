local flin = require "flin"
flin.variant {
  name = "bad",
  input = { q = "t k k" },
  step = function (x) return {}, x.q end,
}
