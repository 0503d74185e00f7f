-- flin: --sandbox --budget 20000000
local t = {}
for i = 1, 10000 do t[i] = ("a"):rep(1 << 14) end
table.sort(t)
