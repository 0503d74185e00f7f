local flin = require "flin"
flin.stdlib.kda:check { dtype = "int8" }
