-- 1. Define: the mathematics of one token becomes a layer.
--
--   flin examples/01_define.lua
local flin = require "flin"
local exp, dot, outer = flin.exp, flin.dot, flin.outer

-- Gated linear attention. Axes: t token, k key, v value; batch and heads are
-- always there and never written.
local gla = flin.variant {
  name  = "my_gla",
  input = { q = "t k", k = "t k", v = "t v", g = "t k : log_decay" },
  state = { S = "k v" },
  step  = function (x, s)
    local S = exp(x.g) * s.S + outer(x.k, x.v)
    return { S = S }, dot(x.q, S)
  end,
}
print(gla)                              -- what flin has understood

-- Run it. Tensors are [batch, tokens, heads, axes...].
local B, T, H, K, V = 2, 100, 4, 32, 32
local y, state = gla:forward {
  q = flin.randn { B, T, H, K }, k = flin.randn { B, T, H, K },
  v = flin.randn { B, T, H, V }, g = flin.rand { B, T, H, K } * -0.1,
}
print("\ny:", y)
print("\nthe state it leaves:", state.S)
