local flin = require "flin"
local x = = 3
