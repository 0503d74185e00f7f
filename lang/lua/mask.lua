-- v:mask and flin.heat_map: which token weighs how much in whose result.
local flin, own = ...

local mask = {}
local MOST <const> = 65536              -- tokens: they are an axis here

-- An input of the variant whose entries at the first index of each axis but
-- t are 1, else 0.
local function first_entry(like)
  local t = like * 0
  local part = t
  for axis = 4, t.rank do
    part = part:narrow(axis, 1, 1)
  end
  part:fill(1)
  return t
end

-- [B, T, H, ..., T]: token i's value is the i-th unit vector.
local function identity(like, n)
  local t = like * 0
  for i = 1, n do
    t:narrow(2, i, 1):narrow(t.rank, i, 1):fill(1)
  end
  return t
end

-- The input that plays a part, by the names that papers give it.
local function role(v, has, axis, ...)
  for _, name in ipairs { ... } do
    if has[name] and has[name]:find("^t.* " .. axis .. "$") then
      return name
    end
  end
  error(("mask: %s has no input %s \"t %s\": the mask is seen through q, k "
         .. "and v"):format(v.name, (...), axis), 3)
end

function mask.of(v, o)
  o = o or {}
  if type(o) ~= "table" then
    error("mask: a table of options is wanted, not a " .. type(o), 2)
  end
  if o.format == "svg" then
    return own.picture.mask(v, o)
  elseif o.format ~= nil and o.format ~= "tensor" then
    error(("mask: there is no format '%s'\n  help: formats: tensor, svg")
          :format(tostring(o.format)), 2)
  end
  local T, has = o.T or 32, {}
  if math.type(T) ~= "integer" or T < 1 or T > MOST then
    error(("mask: T = %s: a whole number from 1 to %d is wanted")
          :format(tostring(T), MOST), 2)
  end
  for _, input in ipairs(v.inputs) do
    has[input.name] = input.axes
  end
  local q, k, value = role(v, has, "k", "q", "C", "r"),
                      role(v, has, "k", "k", "B"), role(v, has, "v", "v", "x")
  local options, given = { B = 1, H = 1, T = T, v = T }, {}
  for name, x in pairs(o) do
    if has[name] then
      given[name] = x
    elseif name ~= "format" then
      options[name] = x
    end
  end
  local inputs = v:random(options)
  inputs[q], inputs[k] = first_entry(inputs[q]), first_entry(inputs[k])
  inputs[value] = identity(inputs[value], T)
  for name, x in pairs(given) do
    inputs[name] = x
  end
  return v:reference(inputs):reshape(T, T)
end

-- ---- pictures ----

-- x between two corners as a byte.
local function ramp(x, from, to)
  return math.floor(255 * math.max(0, math.min(1, (x - from) / (to - from))))
end

-- Black, violet, orange, white; grey where there are 256 colours. ground: 38
-- is the upper half of the block, 48 the lower.
local function colour(colours, x, ground)
  if colours == "256" then
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
    local s = math.max(1, math.min(9, 1 + math.floor(x * 9)))
    cells[j] = x == 0 and "  " or shades:sub(s, s):rep(2)
  end
  return table.concat(cells)
end

local function coloured(colours, upper, lower)
  local cells = {}
  for j, x in ipairs(upper) do
    cells[j] = colour(colours, x, 38)
               .. colour(colours, lower and lower[j] or 0, 48) .. "▀"
  end
  return table.concat(cells) .. "\27[0m"
end

function mask.heat_map(rows, colours)
  if flin.is_tensor(rows) and rows.rank == 2 then
    rows = rows:totable()
  end
  if type(rows) ~= "table" or type(rows[1]) ~= "table" then
    error("flin.heat_map: rows of numbers are wanted: a tensor [n, m] or a "
          .. "table of tables", 2)
  end
  colours = colours or "ascii"
  if colours ~= "true" and colours ~= "256" and colours ~= "ascii" then
    error("flin.heat_map: no colours '" .. tostring(colours)
          .. "'\n  help: true, 256, ascii", 2)
  end
  local lines, ascii = {}, colours == "ascii"
  for i = 1, #rows, ascii and 1 or 2 do
    lines[#lines + 1] = ascii and shaded(rows[i])
                        or coloured(colours, rows[i], rows[i + 1])
  end
  return table.concat(lines, "\n")
end

return mask
