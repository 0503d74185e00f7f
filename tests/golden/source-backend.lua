local flin = require "flin"
flin.stdlib.simple_gla:source("opencl")
