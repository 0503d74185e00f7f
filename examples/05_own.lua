-- 5. Your own: a variant defined, seen, checked, differentiated and timed.
--
--   flin examples/05_own.lua         all of it, in this file
--   flin check examples/05_own.lua   the same checks, on every backend
--
-- A delta rule whose keys also decay at a rate of their own, and that adds
-- what the token before wrote to what this one reads.
local flin = require "flin"
local exp, dot, outer, prev = flin.exp, flin.dot, flin.outer, flin.prev

local own = flin.variant {
  name  = "own",
  input = { q = "t k", k = "t k : unit_norm", v = "t v",
            g = "t k : log_decay", beta = "t : unit", mix = "t : unit" },
  state = { S = "k v" },
  step  = function (x, s)
    local S = exp(x.g) * s.S
    S = S + outer(x.beta * x.k, x.v - dot(x.k, S))
    return { S = S }, dot(x.q, S) + x.mix * prev(x.v)
  end,
}

print(own:dag())                                            -- defined
local weights = own:mask { T = 16 }                         -- seen
print("\n" .. flin.heat_map(weights / weights:maxabs()))

local errors = own:check { T = 150, K = 32, V = 32 }        -- verified
assert(errors.worst < 1e-4, tostring(errors))
print(("\nchunks against the step: %.1e at worst"):format(errors.worst))

local slopes = own:gradcheck()                              -- gradients
assert(slopes.worst < 1e-5, tostring(slopes))
print(("gradients against differences: %.1e\n"):format(slopes.worst))

print(own:bench { T = 512, H = 2, K = 32, V = 32, seconds = 0.1 })  -- timed
return own
