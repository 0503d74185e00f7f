local flin = require "flin"
flin.varient { name = "bad" }
