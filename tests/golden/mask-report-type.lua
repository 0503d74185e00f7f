local flin = require "flin"
flin.mask_report("mask")
