local flin = require "flin"
flin.stdlib.precond_gdn:plan { K = 1024, V = 16, machine = "h200", chunk = 64 }
