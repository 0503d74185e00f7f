local flin = require "flin"
local t = flin.zeros(2, 3)
print(t[{ 3, 1 }])
