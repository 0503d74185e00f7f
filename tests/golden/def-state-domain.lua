local flin = require "flin"
flin.variant {
  name = "bad",
  input = { q = "t k" },
  state = { S = "k : unit" },
  step = function (x, s) return { S = x.q }, x.q end,
}
