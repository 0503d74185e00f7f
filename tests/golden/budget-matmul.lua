-- flin: --sandbox --budget 20000000
local flin = require "flin"
local a = flin.ones(500, 500)
while true do flin.host.matmul(a, a) end
