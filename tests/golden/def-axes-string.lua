local flin = require "flin"
local exp, dot, outer = flin.exp, flin.dot, flin.outer
flin.variant { name = "bad", axes = { k = "64" }, input = { k = "t k" },
               step = function (x) return {}, x.k end }
