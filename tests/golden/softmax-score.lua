local flin = require "flin"
return flin.variant { name = "mine", score = function (s) return s end,
                      mask = function (i, j) return 1 end }
