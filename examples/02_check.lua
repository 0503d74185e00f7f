-- 2. Check: the chunks compute what the step says.
--
--   flin examples/02_check.lua
local flin = require "flin"
local v = flin.stdlib.gated_deltanet

-- v:reference is the step itself, token by token in float64. v:check holds
-- everything to it: y, the states left, decoding, and all gradients.
local r = v:check { B = 2, T = 300, H = 2, K = 64, V = 64 }
print("relative errors, float32:\n" .. tostring(r))
assert(r.worst < 1e-4)

-- Packed sequences, another chunk size, bfloat16: the same call.
r = v:check { cu_seqlens = { 0, 5, 5, 70, 200 }, H = 2, K = 32, V = 32,
              chunk = 32 }
print(("packed sequences, chunks of 32: %.1e at worst"):format(r.worst))
assert(r.worst < 1e-4)
r = v:check { T = 100, K = 32, V = 32, dtype = "bfloat16" }
print(("bfloat16: y %.1e"):format(r.y))
assert(r.y < 4e-3)

-- A step that has no chunk form still runs, and says why it has none.
local bent = flin.variant {
  name = "bent", input = { q = "t k", k = "t k", v = "t v" },
  state = { S = "k v" },
  step = function (x, s)
    local S = flin.tanh(s.S) + flin.outer(x.k, x.v)
    return { S = S }, flin.dot(x.q, S)
  end,
}
print("\n" .. tostring(bent))
assert(bent:check { T = 50 }.y < 1e-5)
