local flin = require "flin"
flin.layer { input = { x = "t d" }, weights = {},
             forward = function (x) return x.x end }
