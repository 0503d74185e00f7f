local flin = require "flin"
flin.variant {
  name = "bad",
  input = { ["my input"] = "t k" },
  step = function (x) return {}, x["my input"] end,
}
