-- flin: --sandbox --budget 100000000
-- A call that a spent budget stops says so. It runs no Lua, so that the line
-- is the same on any machine.
local flin = require "flin"
local v = flin.stdlib.gated_deltanet
local x = v:random { T = 2000 }
while true do v:forward(x) end
