-- flin: --sandbox --budget 20000000
local flin = require "flin"
flin.ones(1):expand(1, 1 << 40):sum()
