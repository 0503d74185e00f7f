-- heat_map.lua -- numbers from 0 to 1 as a picture in the terminal: half
-- blocks in true colour or 256 colours, or shades of ASCII where output is no
-- terminal or NO_COLOR is set.
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

-- x between two corners as a byte.
local function ramp(x, from, to)
  return math.floor(255 * math.max(0, math.min(1, (x - from) / (to - from))))
end

-- Black, violet, orange, white; grey where there are 256 colours. ground: 38
-- is the upper half of the block, 48 the lower.
local function colour(x, ground)
  if heat_map.depth == "256" then
    return ("\27[%d;5;%dm"):format(ground, 232 + ramp(x, 0, 1) * 23 // 255)
  end
  local blue = x < 0.5 and ramp(x, 0, 0.5) // 2
               or math.max(ramp(x, 0.75, 1), 127 - ramp(x, 0.5, 0.75) // 2)
  return ("\27[%d;2;%d;%d;%dm"):format(ground, ramp(x, 0, 0.6),
                                       ramp(x, 0.3, 0.95), blue)
end

local function shaded(row)
  local shades, cells = ".:-=+*#%@", {}
  for j, x in ipairs(row) do
    local s = math.min(9, 1 + math.floor(x * 9))
    cells[j] = x <= 0 and "  " or shades:sub(s, s):rep(2)
  end
  return table.concat(cells)
end

local function coloured(upper, lower)
  local cells = {}
  for j, x in ipairs(upper) do
    cells[j] = colour(x, 38) .. colour(lower and lower[j] or 0, 48) .. "▀"
  end
  return table.concat(cells) .. "\27[0m"
end

-- Lines that show the rows; of equal width.
function heat_map.lines(rows)
  local lines = {}
  local ascii = heat_map.depth == "ascii"
  for i = 1, #rows, ascii and 1 or 2 do
    lines[#lines + 1] = ascii and shaded(rows[i])
                        or coloured(rows[i], rows[i + 1])
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
