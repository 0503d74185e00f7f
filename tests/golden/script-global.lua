local flin = require "flin"
local exp, dot, outer = flin.exp, flin.dot, flin.outer
prnt(1)
