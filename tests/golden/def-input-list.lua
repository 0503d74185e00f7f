local flin = require "flin"
flin.variant {
  name = "bad",
  input = { "q", "k" },
  step = function (x) return {}, x.q end,
}
