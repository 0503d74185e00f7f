-- flin: --sandbox --budget 1000000
local flin = require "flin"
return flin.variant {
  name  = "bad",
  input = { q = "t k", k = "t k", v = "t v" },
  state = { S = "k v" },
  step  = function (x, s)
    while true do end
    return { S = s.S }, x.q
  end,
}
