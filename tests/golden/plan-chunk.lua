local flin = require "flin"
flin.stdlib.mamba3_mimo:plan { K = 256, V = 16, P = 16, machine = "h200",
                               chunk = 64, backward = true }
