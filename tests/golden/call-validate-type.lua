local flin = require "flin"
local exp, dot, outer = flin.exp, flin.dot, flin.outer
local v = flin.stdlib.gla
v:forward(v:random { T = 5 }, { validate = "yes" })
