local flin = require "flin"
local v = flin.stdlib.linear
v:forward(v:random { T = 5 }, 64)
