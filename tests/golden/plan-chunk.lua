local flin = require "flin"
flin.stdlib.mamba3_mimo:plan { K = 128, V = 128, machine = "h200", chunk = 64,
                               backward = true }
