local flin = require "flin"
flin.stdlib.gated_deltanet:plan { K = 4096, V = 512, machine = "h200",
                                  chunk = 64 }
