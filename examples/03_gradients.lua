-- 3. Gradients: derived, and compared with differences.
--
--   flin examples/03_gradients.lua
local flin = require "flin"
local v = flin.stdlib.gated_deltanet

-- <gradient, d> beside the derivative of the float64 step along d, for random
-- directions d of each input and initial state.
local r = v:gradcheck { T = 20, K = 8, V = 8 }
print(r)
assert(r.worst < 1e-5)

-- The gradients themselves: of L = sum(y^2) / 2, so dy = y.
local x = v:random { B = 1, T = 200, H = 2, K = 32, V = 32 }
local y, _, saved = v:forward { save = true, q = x.q, k = x.k, v = x.v,
                                g = x.g, beta = x.beta }
local grad = v:backward { saved = saved, dy = y }
print("\nd L / d beta:", grad.beta)

-- A step against the gradient makes L smaller.
local function loss(input)
  local out = v:forward(input)
  return (out * out):sum() / 2
end
local before = loss(x)
x.beta = x.beta - grad.beta * 1e-4
print(("\nL %.6f, after a small step %.6f"):format(before, loss(x)))
assert(loss(x) < before)
