local flin = require "flin"
flin.stdlib.kda:check { H = 3, HV = 4 }
