-- Chunks forward, token by token backward: what may be zero.
local flin = require "flin"
local v = flin.variant {
  name  = "opened",
  input = { q = "t k", k = "t k", v = "t v", a = "t k : unit" },
  state = { S = "k v" },
  step  = function (x, s)
    local write = flin.outer(x.k, x.v)
    local S = x.a * s.S + write
    return { S = S }, flin.dot(x.q, S)
  end,
}
error(v:plan({ K = 8, V = 8, backward = true }).note, 0)
