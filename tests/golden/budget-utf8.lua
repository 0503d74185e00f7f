-- flin: --sandbox --budget 5000000
local s = ("a"):rep(1 << 22)
while true do utf8.len(s) end
