local flin = require "flin"
flin.probe("x", flin.randn { 2 })
