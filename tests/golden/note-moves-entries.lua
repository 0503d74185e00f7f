-- Linear in its state, yet neither scales it nor reads it.
local flin = require "flin"
local dot = flin.dot
local v = flin.variant {
  name  = "turns",
  input = { q = "t k", k = "t k", v = "t v", theta = "t p : angle" },
  state = { S = "k v" },
  step  = function (x, s)
    local S = flin.rotate(s.S, x.theta, "k") + flin.outer(x.k, x.v)
    return { S = S }, dot(x.q, S)
  end,
}
error(v.form, 0)
