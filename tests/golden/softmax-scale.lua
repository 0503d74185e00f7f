local flin = require "flin"
return flin.variant { name = "mine", normalise = "softmax", scale = 0 }
