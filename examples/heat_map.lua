-- heat_map.lua -- numbers from 0 to 1 as a picture in the terminal: half
-- blocks in true colour or 256 colours, or shades of ASCII where output is no
-- terminal or NO_COLOR is set.
local flin = require "flin"
local heat_map = {}

local function colour_depth()
  local term = os.getenv "TERM" or "dumb"
  local colours = os.getenv "COLORTERM" or ""
  if os.getenv "NO_COLOR" or term == "dumb" or not os.execute "test -t 1" then
    return "ascii"
  elseif colours:find "truecolor" or colours:find "24bit" then
    return "true"
  end
  return term:find "256" and "256" or "ascii"
end

heat_map.depth = colour_depth()

-- Lines that show the rows; of equal width.
function heat_map.lines(rows)
  local lines = {}
  for line in flin.heat_map(rows, heat_map.depth):gmatch "[^\n]+" do
    lines[#lines + 1] = line
  end
  return lines
end

-- Text as wide as a picture of n columns; spread: a character to a column.
function heat_map.label(text, n, spread)
  local width = heat_map.depth == "ascii" and 2 * n or n
  if spread and width > n then
    text = text:gsub(".", "%0 ")
  end
  return text .. (" "):rep(width - #text)
end

return heat_map
