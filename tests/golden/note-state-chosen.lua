-- A choice by what the state holds.
local flin = require "flin"
local v = flin.variant {
  name  = "clipped",
  input = { q = "t k", k = "t k" },
  state = { n = "k" },
  step  = function (x, s)
    local n = s.n + x.k
    local small = flin.lt(n, 1)
    n = flin.where(small, n, 0)
    return { n = n }, flin.dot(x.q, n)
  end,
}
error(v.form, 0)
