-- A term that flin has made of two lines: where they meet.
local flin = require "flin"
local v = flin.variant {
  name  = "both",
  input = { q = "t k", k = "t k", v = "t v", a = "t k", b = "t v" },
  state = { S = "k v" },
  step  = function (x, s)
    local by_key = flin.sigmoid(x.a) * s.S
    local both = flin.sigmoid(x.b) * by_key
    local S = both + flin.outer(x.k, x.v - flin.dot(x.k, both))
    return { S = S }, flin.dot(x.q, S)
  end,
}
error(v.form, 0)
