local flin = require "flin"
local v = flin.stdlib.linear
local x = v:random { T = 5 }
assert(v:forward(x, { chunk = 4 }) and x.chunk == nil)
v:forward(x, { chunk = 4, q = x.q })
