local flin = require "flin"
flin.layer { input = { x = "t d" } }
