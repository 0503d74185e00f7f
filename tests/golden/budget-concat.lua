-- flin: --sandbox --budget 1000000
local text = ("a"):rep(1 << 20)
while true do
  local longer = text .. "b"
end
