local flin = require "flin"
flin.stdlib.simple_gla:source("cuda", { arch = "sm_70" })
