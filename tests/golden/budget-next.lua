-- flin: --sandbox --budget 20000000
local t = {}
for i = 1, 1 << 20 do t[i] = i end
for i = 1, 1 << 20 do t[i] = nil end
while true do next(t) end
