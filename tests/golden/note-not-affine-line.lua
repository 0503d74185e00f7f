-- The line that breaks the form, of a step in several.
local flin = require "flin"
local v = flin.variant {
  name  = "saturates",
  input = { q = "t k", k = "t k", v = "t v" },
  state = { S = "k v" },
  step  = function (x, s)
    local write = flin.outer(x.k, x.v)
    local S = s.S + write
    S = flin.tanh(S)
    return { S = S }, flin.dot(x.q, S)
  end,
}
v:forward(v:random { T = 3, K = 4, V = 4 })
error(v.note, 0)
