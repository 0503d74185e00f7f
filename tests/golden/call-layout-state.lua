local flin = require "flin"
local v = flin.stdlib.gated_deltanet
local B, T, H, K, V = 2, 9, 4, 8, 6
local function args(change)
  local a = { q = flin.randn(B, T, H, K), k = flin.randn(B, T, H, K),
              v = flin.randn(B, T, H, V), g = flin.zeros(B, T, H),
              beta = flin.ones(B, T, H) }
  for name, value in pairs(change) do
    a[name] = value or nil
  end
  return a
end
local q, g = flin.randn(2, 4, 9, 8), flin.zeros(2, 4, 9)
v:forward { q = q, k = q, v = q, g = g, beta = g,
            initial_state = { S = flin.zeros(2, 4, 8, 8) } }
