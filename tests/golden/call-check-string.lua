local flin = require "flin"
local exp, dot, outer = flin.exp, flin.dot, flin.outer
flin.stdlib.gla:check { K = "64" }
