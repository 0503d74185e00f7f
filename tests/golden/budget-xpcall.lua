-- flin: --sandbox --budget 100000
local function forever()
  while true do end
end
while true do
  xpcall(forever, forever)
end
