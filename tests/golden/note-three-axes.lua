-- Reads along other axes of a state than its update's: where it is made.
local flin = require "flin"
local v = flin.variant {
  name  = "cube",
  input = { k = "t k", v = "t v", w = "t w" },
  state = { S = "k v w" },
  step  = function (x, s)
    local held = flin.dot(x.k, s.S)
    local S = s.S + flin.outer(x.k, flin.outer(x.v, x.w) - held)
    return { S = S }, flin.dot(x.v, S)
  end,
}
error(v.form, 0)
