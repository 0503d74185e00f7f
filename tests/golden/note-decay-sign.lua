-- An input that is to blame: where it scales the state, not where it is
-- declared.
local flin = require "flin"
local v = flin.variant {
  name  = "signed",
  input = { q = "t k", k = "t k", v = "t v", a = "t v" },
  state = { S = "k v" },
  step  = function (x, s)
    local kept = x.a * s.S
    local S = kept + flin.outer(x.k, x.v - flin.dot(x.k, kept))
    return { S = S }, flin.dot(x.q, S)
  end,
}
error(v.form, 0)
