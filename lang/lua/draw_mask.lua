-- flin.picture.mask: a mask as a map, with axes and a scale; signed where it
-- has both signs, logarithmic where that is asked for.
local flin, own = ...
local svg = own.load "lang/lua/svg" (flin, own)

local MOST <const> = 256                -- cells along a side
local SIDE <const>, LEFT <const>, TOP <const> = 440, 74, 74

-- The entry of greatest size in each block of n x n.
local function blocks(rows, n)
  if n == 1 then
    return rows
  end
  local out = {}
  for i, row in ipairs(rows) do
    local to = out[(i - 1) // n + 1] or {}
    out[(i - 1) // n + 1] = to
    for j, x in ipairs(row) do
      local place = (j - 1) // n + 1
      if not to[place] or math.abs(x) > math.abs(to[place]) then
        to[place] = x
      end
    end
  end
  return out
end

-- What the numbers reach: greatest size, least that is not 0, whether any is
-- below 0, whether all are finite.
local function extent(rows)
  local most, least, signed, finite = 0, math.huge, false, true
  for _, row in ipairs(rows) do
    for _, x in ipairs(row) do
      local size = math.abs(x)
      if size ~= size or size == math.huge then
        finite = false
      elseif size > 0 then
        most, least = math.max(most, size), math.min(least, size)
        signed = signed or x < 0
      end
    end
  end
  return most, least, signed, finite
end

-- Where a number lies on its scale: 0 to 1, of its size.
local function scale_of(o, most, least)
  if not o.log then
    return function (size) return size / most end, 0
  end
  local lo = math.max(least, most * 10.0 ^ -o.decades)
  lo = 10.0 ^ math.floor(math.log(lo, 10) + 1e-9)
  lo = lo < most and lo or most / 10
  local span = math.log(most / lo)
  return function (size)
    return math.max(0, math.log(size / lo) / span)
  end, lo
end

-- Cells of one colour as one path, those that touch in a row as one box.
local function cells(c, rows, place, signed, log)
  local paths, order, n = {}, {}, #rows
  local size = SIDE / n
  local function class_of(x)
    if x ~= x or x == math.huge or x == -math.huge then
      return "f5"
    elseif x == 0 then
      return nil
    end
    local part = place(math.abs(x)) * svg.LEVELS
    if signed and not log and part < 0.5 then
      return "z"                        -- too little for its sign to matter
    end
    local level = 1 + math.min(svg.LEVELS - 1, math.floor(part))
    return (not signed and "p" or x < 0 and "n" or "w") .. level
  end
  for i, row in ipairs(rows) do
    local j = 1
    while j <= #row do
      local class, from = class_of(row[j]), j
      repeat
        j = j + 1
      until j > #row or class_of(row[j]) ~= class
      if class then
        if not paths[class] then
          paths[class] = {}
          order[#order + 1] = class
        end
        table.insert(paths[class], ("M%s %sh%sv%sh-%sz"):format(
          svg.at(LEFT + (from - 1) * size), svg.at(TOP + (i - 1) * size),
          svg.at((j - from) * size), svg.at(size), svg.at((j - from) * size)))
      end
    end
  end
  table.sort(order)
  for _, class in ipairs(order) do
    c:path(table.concat(paths[class]), class .. " crisp")
  end
end

local function axes(c, o, tokens, per)
  local size = SIDE / math.ceil(tokens / per) / per
  c:rect(LEFT, TOP, SIDE, SIDE, "axis")
  for _, i in ipairs(svg.positions(tokens, 9)) do
    local x = LEFT + (i + 0.5) * size
    c:line(x, TOP + SIDE, x, TOP + SIDE + 5, "axis")
    c:text(x, TOP + SIDE + 18, i, "muted small", "middle")
    local y = TOP + (i + 0.5) * size
    c:line(LEFT - 5, y, LEFT, y, "axis")
    c:text(LEFT - 9, y + 4, i, "muted small", "end")
  end
  c:text(LEFT + SIDE / 2, TOP + SIDE + 40, o.x, "ink", "middle")
  c:upright(LEFT - 46, TOP + SIDE / 2, o.y, "ink")
end

-- The marks of one half of the scale: value and its place, 0 to 1.
local function marks(o, most, least, lo, place)
  local out = {}
  if not o.log then
    for _, x in ipairs(svg.ticks(0, most, 5)) do
      out[#out + 1] = { svg.number(x), x / most }
    end
    return out
  end
  for _, x in ipairs(svg.decades(lo, most, 7)) do
    out[#out + 1] = { (x <= lo and least < lo and "≤ " or "")
                      .. svg.power(x), place(x) }
  end
  return out
end

local function scale(c, o, most, least, lo, place, signed)
  local x, wide = LEFT + SIDE + 26, 16
  local half = signed and SIDE / 2 or SIDE
  local zero = TOP + (signed and half or SIDE)
  local step = half / svg.LEVELS
  for level = 1, svg.LEVELS do
    c:rect(x, zero - level * step, wide, step, (signed and "w" or "p") .. level
           .. " crisp")
    if signed then
      c:rect(x, zero + (level - 1) * step, wide, step, "n" .. level
             .. " crisp")
    end
  end
  if signed and not o.log then
    c:rect(x, zero - step / 2, wide, step, "z crisp")
  end
  c:rect(x, TOP, wide, SIDE, "axis")
  local function mark(y, text)
    c:line(x + wide, y, x + wide + 5, y, "axis")
    c:text(x + wide + 9, y + 4, text, "muted small")
  end
  for _, m in ipairs(marks(o, most, least, lo, place)) do
    local text, part = m[1], m[2]
    if signed and o.log and part * half < 9 then
      goto continue                     -- the two halves meet there
    end
    mark(zero - part * half, text)
    if signed and part * half > 1 then
      mark(zero + part * half, "−" .. text)
    end
    ::continue::
  end
  if signed and o.log then
    mark(zero, (least < lo and "≤ ±" or "±") .. svg.power(lo))
  end
end

-- Rows of numbers of equal length, as many; else an error.
local function rows_of(what)
  if flin.is_tensor(what) and what.rank == 2 then
    what = what:totable()
  end
  local n = type(what) == "table" and #what or 0
  local ok = n > 0 and n <= svg.MOST
  for i = 1, ok and n or 0 do
    local row = rawget(what, i)
    ok = ok and type(row) == "table" and #row == n
    for j = 1, ok and n or 0 do
      ok = ok and type(rawget(row, j)) == "number"
    end
  end
  if not ok then
    error(("flin.picture.mask: a variant, or as many rows of numbers as each "
           .. "is long, is wanted (%d at most)"):format(svg.MOST), 4)
  end
  return what
end

local OWN <const> = { log = false, decades = 8, theme = "auto", title = "",
                      x = "token j, which is read",
                      y = "token i, whose result it is" }

-- options: those of the drawing; of a variant the rest is v:mask's.
local function split(options)
  local drawing, rest = {}, {}
  for name, x in next, options do
    if OWN[name] ~= nil then
      drawing[name] = x
    elseif name ~= "format" then
      rest[name] = x
    end
  end
  return drawing, rest
end

return function (what, options)
  options = options or {}
  if type(options) ~= "table" then
    error("flin.picture.mask: a table of options is wanted, not a "
          .. type(options), 3)
  end
  local name = type(what) == "userdata" and not flin.is_tensor(what)
               and what.name or nil
  local rows, given = nil, options
  if name then
    local rest
    given, rest = split(options)
    rows = rows_of(what:mask(rest))
  else
    rows = rows_of(what)
  end
  local o = svg.options("flin.picture.mask", given, OWN)
  local tokens = #rows
  local per = math.max(1, -(-tokens // MOST))
  rows = blocks(rows, per)
  local most, least, signed, finite = extent(rows)
  if most == 0 then
    most, least = 1, 1
  end
  local place, lo = scale_of(o, most, least)
  local title = o.title ~= "" and o.title or name or "mask"
  local c = svg.canvas(LEFT + SIDE + 116, TOP + SIDE + 62, title, o.theme)
  c.ramps = signed and { "n", "w" } or { "p" }
  c:text(LEFT, 30, title, "ink title")
  c:text(LEFT, 52, ("weight of token j in token i's result%s%s%s"):format(
         o.log and ", logarithmic" or "",
         per > 1 and (", of %d × %d the greatest"):format(per, per) or "",
         finite and "" or "; red: not finite"), "muted")
  c:rect(LEFT, TOP, SIDE, SIDE, "panel")
  cells(c, rows, place, signed, o.log)
  axes(c, o, tokens, per)
  scale(c, o, most, least, lo, place, signed)
  return c:finish()
end
