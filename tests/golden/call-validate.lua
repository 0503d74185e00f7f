local flin = require "flin"
local exp, dot, outer = flin.exp, flin.dot, flin.outer
local v = flin.stdlib.gla
local x = v:random { T = 5, K = 2, V = 2, H = 1, B = 1 }
x.g:fill(0.5)
v:forward(x, { validate = true })
