-- What is backward's, given to forward.
local flin = require "flin"
local gla = flin.stdlib.gla
local x = gla:random { T = 4, K = 4, V = 4 }
x.dy = flin.ones(1, 4, 1, 4)
gla:forward(x)
