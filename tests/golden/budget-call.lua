-- flin: --sandbox --budget 30000000
-- A call that a spent budget stops says so.
local flin = require "flin"
local v = flin.stdlib.gated_deltanet
while true do v:check { T = 2000 } end
