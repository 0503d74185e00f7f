-- flin: --sandbox --budget 20000000
local t = {}
for i = 1, 200000 do t[i] = i end
local function pass(...)
  while true do local x = (function (...) end)(...) end
end
pass(table.unpack(t))
