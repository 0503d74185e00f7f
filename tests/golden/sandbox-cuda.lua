-- flin: --sandbox
local flin = require "flin"
flin.cuda { poison = true }
