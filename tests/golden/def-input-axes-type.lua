local flin = require "flin"
flin.variant {
  name = "bad",
  input = { q = 3 },
  step = function (x) return {}, x.q end,
}
