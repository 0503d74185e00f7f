local flin = require "flin"
flin.variant {
  name = "bad",
  input = { q = "t k" },
  step = "x.q",
}
