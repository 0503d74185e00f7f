local flin = require "flin"
local l = flin.layers.gla
l:probe {}
