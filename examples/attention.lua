-- Softmax attention in flin: causal, in a window, with linear biases and a soft
-- cap. Each is held to the sum over all pairs in float64.
--   flin examples/attention.lua
local flin = require "flin"

local variants = {
  flin.variant { name = "attention", normalise = "softmax" },

  flin.variant { name = "window", normalise = "softmax",
    mask = function (i, j)
      if i < j or i - j >= 32 then return 0 end
      return 1
    end },

  flin.variant { name = "alibi", normalise = "softmax",
    input = { slope = ": positive" },           -- a number for each head
    mask = function (i, j, p)
      if i < j then return 0 end
      return flin.exp(-p.slope * (i - j))
    end },

  flin.variant { name = "capped", normalise = "softmax",
    score = function (s) return 30 * flin.tanh(s / 30) end },
}

for _, v in ipairs(variants) do
  local found = v:check { T = 100, H = 2, HV = 4, K = 16, V = 16 }
  print(("%-10s off by %.0e, gradients included"):format(v.name, found.worst))
end
