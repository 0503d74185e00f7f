-- flin: --sandbox --budget 20000000
local t = {}
for i = 1, 200000 do t[i] = i end
local function last(...)
  while true do local x = select(-1, ...) end
end
last(table.unpack(t))
