-- Nothing to blame but the state: where it is first used.
local flin = require "flin"
local v = flin.variant {
  name  = "cube",
  input = { k = "t k", v = "t v", w = "t w" },
  state = { S = "k v w" },
  step  = function (x, s)
    local kv = flin.outer(x.k, x.v)
    local S = s.S
              + flin.outer(kv, x.w)
    return { S = S }, flin.dot(x.k, S)
  end,
}
error(v.form, 0)
