-- A query of its own for each key: no product of matrices reads the state so.
local flin = require "flin"
local v = flin.variant {
  name  = "entries",
  input = { q = "t k", k = "t k", v = "t v", p = "t k v" },
  state = { S = "k v" },
  step  = function (x, s)
    local S = 0.9 * s.S + flin.outer(x.k, x.v)
    return { S = S }, flin.dot(x.q * flin.sum(x.p * S, "v"), x.k) * x.v
  end,
}
error(v.form, 0)
