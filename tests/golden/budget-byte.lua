-- flin: --sandbox --budget 5000000
local s = ("a"):rep(1 << 19)
while true do local first = s:byte(1, -1) end
