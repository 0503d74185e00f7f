local flin = require "flin"
flin.variant(3)
