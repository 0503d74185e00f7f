local flin = require "flin"
flin.variant {
  name = "bad",
  input = { g = "t : decay" },
  step = function (x) return {}, x.g end,
}
