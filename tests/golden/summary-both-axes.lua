-- Linear in its state, but along both of its axes.
local flin = require "flin"
local v = flin.variant {
  name  = "both",
  input = { q = "t k", k = "t k", v = "t v", a = "t k : log_decay",
            b = "t v : log_decay" },
  state = { S = "k v" },
  step  = function (x, s)
    local S = flin.exp(x.a) * (flin.exp(x.b) * s.S) + flin.outer(x.k, x.v)
    return { S = S }, flin.dot(x.q, S)
  end,
}
v:summary(v:random { T = 4, K = 4, V = 4 })
