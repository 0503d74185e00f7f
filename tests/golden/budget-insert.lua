-- flin: --sandbox --budget 1000000
local t = {}
while true do
  table.insert(t, 1, 1)
end
