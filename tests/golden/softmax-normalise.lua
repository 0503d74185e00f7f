local flin = require "flin"
return flin.variant { name = "mine", normalise = "l1" }
