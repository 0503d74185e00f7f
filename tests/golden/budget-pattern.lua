-- flin: --sandbox --budget 1000000
local text = ("a"):rep(300)
while true do
  text:find(".-.-b")
end
