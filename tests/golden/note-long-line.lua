-- A line that is too long to show is named with its file.
local flin = require "flin"
local v = flin.variant {
  name  = "bent", input = { q = "t k", k = "t k", v = "t v" },
  state = { S = "k v" },
  step  = function (x, s) local S = flin.tanh(s.S) + flin.outer(x.k, x.v) return { S = S }, flin.dot(x.q, S) end,  -- and on it goes, in one line, as those who write short scripts do, until nobody can read it any more, ever
}
error(v.form, 0)
