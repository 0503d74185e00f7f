-- flin: --sandbox --budget 1000000
-- What helps with a message runs no function of the script's without end.
local function forever() while true do end end
string.match, string.find, string.gsub = forever, forever, forever
getmetatable("").__tostring = forever
forever()
