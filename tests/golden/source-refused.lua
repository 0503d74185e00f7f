local flin = require "flin"
flin.stdlib.simple_gla:source("cuda", { chunk = 32 })
