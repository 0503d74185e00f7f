local flin = require "flin"
flin.stdlib.kda:check { T = 5, seeds = 2 }
