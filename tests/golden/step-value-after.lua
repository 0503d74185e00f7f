local flin = require "flin"
local kept
flin.variant {
  name  = "fine",
  input = { q = "t k" },
  step  = function (x)
    kept = x.q
    return {}, x.q
  end,
}
print(kept + 1)
