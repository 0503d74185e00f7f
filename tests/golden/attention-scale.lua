local flin = require "flin"
flin.attention { scale = "K^-0.5" }
