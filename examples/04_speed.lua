-- 4. Speed: what the compiler made of it, and how fast that is here.
--
--   flin examples/04_speed.lua
local flin = require "flin"
local v = flin.stdlib.gla

-- Beside a loop over the tokens, and the least that this machine needs to
-- read the arguments and write the results.
local b = v:bench { T = 512, H = 2, K = 64, V = 64, seconds = 0.1 }
print(b)
assert(b.speedup > 0)

-- The kernels: what each reads, computes and stores. Any machine's.
print("\n" .. tostring(v:plan { K = 64, V = 64 }))
local p = v:plan { K = 128, V = 128, backward = true, machine = "h200" }
print(("on an H200, with gradients: %d kernels move %.0f bytes a token and "
       .. "head, %.0f %% of what a kernel for each product would")
      :format(#p.kernels, p.bytes, 100 * p.bytes / p.unfused_bytes))

-- And what any schedule has to move.
print("\n" .. tostring(v:io { K = 64, V = 64 }))
