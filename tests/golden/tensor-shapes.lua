local flin = require "flin"
local exp, dot, outer = flin.exp, flin.dot, flin.outer
print(flin.ones(2, 3) + flin.ones(2, 4))
