-- flin.picture.curves, bars and roofline: numbers as charts.
local flin, own = ...
local svg = own.load "lang/lua/svg" (flin, own)

local chart = {}

local function refuse(what, wanted)
  error(("flin.picture.%s: %s"):format(what, wanted), 4)
end

local function finite(x)
  return type(x) == "number" and x == x and math.abs(x) < 1e300
end

-- The drawing's options alone, or an error.
local function options(what, given, usual)
  return svg.options("flin.picture." .. what, given, usual)
end

-- ---- curves ----

-- Series as { name, points = { { x, y } ... } }: points may be numbers, then x
-- counts them from 1. What is not finite breaks off a curve.
local function series_of(list)
  local out, n = {}, 0
  if type(list) ~= "table" or #list == 0 or #list > 64 then
    refuse("curves", "a list of series { name = , points = {{x, y}, ...} } is "
           .. "wanted, 64 at most")
  end
  for i, s in ipairs(list) do
    local points = {}
    if type(s) ~= "table" or type(s.points) ~= "table" then
      refuse("curves", ("series %d has no points = { {x, y}, ... }"):format(i))
    end
    for k = 1, #s.points do
      local p = s.points[k]
      local x, y = k, p
      if type(p) == "table" then
        x, y = p[1], p[2]
      end
      if type(x) ~= "number" or type(y) ~= "number" then
        refuse("curves", ("point %d of series %d is no pair of numbers")
               :format(k, i))
      end
      n = n + 1
      if n > 20 * svg.MOST then
        refuse("curves", ("more than %d points"):format(20 * svg.MOST))
      end
      if finite(x) and finite(y) then
        points[#points + 1] = { x, y }
      end
    end
    out[i] = { name = tostring(s.name or i), points = points }
  end
  return out
end

-- Least and greatest of the points' entry `of`, and of what else is given.
local function range(series, of, more)
  local lo, hi = math.huge, -math.huge
  local function take(x)
    lo, hi = math.min(lo, x), math.max(hi, x)
  end
  for _, s in ipairs(series) do
    for _, p in ipairs(s.points) do
      take(p[of])
    end
  end
  for _, x in ipairs(more) do
    take(x)
  end
  if lo > hi then
    lo, hi = 0, 1
  end
  return lo, hi > lo and hi or lo + 1
end

-- Labels at their places, moved apart so that none covers another.
local function spread(labels, gap, top, bottom)
  table.sort(labels, function (a, b) return a.y < b.y end)
  for i = 2, #labels do
    labels[i].y = math.max(labels[i].y, labels[i - 1].y + gap)
  end
  local over = #labels > 0 and labels[#labels].y - bottom or 0
  for i = #labels, 1, -1 do
    local most = i == #labels and bottom or labels[i + 1].y - gap
    labels[i].y = over > 0 and math.min(labels[i].y, most) or labels[i].y
    labels[i].y = math.max(labels[i].y, top)
  end
end

local CURVES <const> = { title = "", x = "", y = "", theme = "auto",
                         format = "svg", log = false, from = false, to = false,
                         baselines = {}, width = 720, height = 400,
                         columns = 72, rows = 16, colours = "ascii" }

local function baselines_of(o)
  local out = {}
  for i = 1, math.min(#o.baselines, 32) do
    local b = o.baselines[i]
    if type(b) ~= "table" or not finite(b[2]) then
      refuse("curves", "baselines are { { \"name\", y }, ... }")
    end
    out[i] = { tostring(b[1]), b[2] }
  end
  return out
end

-- The range of y that is shown, and where a value lies in it, from 0 to 1.
local function scale_y(series, o, lines)
  local levels = {}
  for i, b in ipairs(lines) do
    levels[i] = b[2]
  end
  local lo, hi = range(series, 2, levels)
  lo, hi = o.from or lo, o.to or hi
  if o.log and not (lo > 0) then
    refuse("curves", "log = true wants values above 0")
  elseif not finite(lo) or not finite(hi) or not (lo < hi) then
    refuse("curves", "from = and to = want numbers, the lesser first")
  end
  if not o.log and not o.from then
    lo = lo - 0.04 * (hi - lo)
  end
  local function map(x) return o.log and math.log(x) or x end
  return lo, hi, function (y)
    if o.log and y <= 0 then
      return 0
    end
    return (map(y) - map(lo)) / (map(hi) - map(lo))
  end
end

local text_curves

function chart.curves(list, given)
  local o = options("curves", given, CURVES)
  local series, lines = series_of(list), baselines_of(o)
  local x0, x1 = range(series, 1, {})
  local y0, y1, part = scale_y(series, o, lines)
  if o.format == "text" then
    return text_curves(series, lines, o, x0, x1, y0, y1, part)
  elseif o.format ~= "svg" then
    refuse("curves", "format = \"svg\" or \"text\"")
  end
  local longest = 0
  for _, s in ipairs(series) do
    longest = math.max(longest, #s.name)
  end
  for _, b in ipairs(lines) do
    longest = math.max(longest, #b[1])
  end
  local left, top = 64, o.title ~= "" and 60 or 24
  local right = left + o.width
  local bottom = top + o.height
  local c = svg.canvas(right + 30 + (longest + 6) * 7.2, bottom + 54,
                       o.title ~= "" and o.title or "curves", o.theme)
  local function px(x) return left + o.width * (x - x0) / (x1 - x0) end
  local function py(y)
    return bottom - o.height * math.max(-0.02, math.min(1, part(y)))
  end
  if o.title ~= "" then
    c:text(left, 32, o.title, "ink title")
  end
  local marks = o.log and svg.decades(y0, y1, 8) or svg.ticks(y0, y1, 7)
  for _, y in ipairs(marks) do
    c:line(left, py(y), right, py(y), "grid")
    c:text(left - 9, py(y) + 4, o.log and svg.power(y) or svg.number(y),
           "muted small", "end")
  end
  c:line(left, bottom, right, bottom, "axis")
  for _, x in ipairs(svg.ticks(x0, x1, 9)) do
    c:line(px(x), bottom, px(x), bottom + 5, "axis")
    c:text(px(x), bottom + 19, svg.number(x), "muted small", "middle")
  end
  c:text((left + right) / 2, bottom + 42, o.x, "ink", "middle")
  c:upright(18, (top + bottom) / 2, o.y, "ink")
  local labels = {}
  for _, b in ipairs(lines) do
    c:line(left, py(b[2]), right, py(b[2]), "rule dashed")
    labels[#labels + 1] = { y = py(b[2]), class = "muted",
                            text = ("%s %s"):format(b[1], svg.number(b[2])) }
  end
  for i, s in ipairs(series) do
    local points = {}
    for k, p in ipairs(s.points) do
      points[k] = { px(p[1]), py(p[2]) }
    end
    c:curve(points, "line s" .. (i - 1) % 8 + 1)
    local last = s.points[#s.points]
    labels[#labels + 1] = last and { y = py(last[2]), text = ("%s %s")
      :format(s.name, svg.number(last[2])), class = "bold f" .. (i - 1) % 8 + 1,
      at = px(last[1]) } or nil
  end
  spread(labels, 16, top, bottom)
  for _, l in ipairs(labels) do
    c:text(right + 12, l.y + 4, l.text, l.class)
  end
  return c:finish()
end

-- ---- curves of text ----

local COLOUR <const> = { 34, 33, 32, 35, 31, 36, 93, 90 }

-- Each cell has 2 x 4 dots of Braille; where nothing but ASCII is to be used,
-- a letter.
function text_curves(series, lines, o, x0, x1, y0, y1, part)
  local wide = math.max(20, math.min(400, o.columns - 10))
  local high = math.max(4, math.min(100, o.rows))
  local dots, owner = {}, {}
  local function mark(x, y, who)        -- in dots, from the upper left
    local cell = (y // 4) * wide + x // 2
    dots[cell] = (dots[cell] or 0) | (x % 2 == 0 and { 1, 2, 4, 64 }
                 or { 8, 16, 32, 128 })[y % 4 + 1]
    owner[cell] = who
  end
  local function row_of(y)
    return math.floor((1 - math.max(0, math.min(1, part(y))))
                      * (4 * high - 1) + 0.5)
  end
  for _, b in ipairs(lines) do
    for x = 0, 2 * wide - 1, 4 do
      mark(x, row_of(b[2]), 0)
    end
  end
  for i, s in ipairs(series) do
    local before
    for _, p in ipairs(s.points) do
      local x = math.floor((2 * wide - 1) * (p[1] - x0) / (x1 - x0) + 0.5)
      local y = row_of(p[2])
      local steps = before and math.max(x - before[1], math.abs(y - before[2]),
                                        1) or 1
      for k = 1, steps do
        local f = k / steps
        mark(before and math.floor(before[1] + f * (x - before[1]) + 0.5) or x,
             before and math.floor(before[2] + f * (y - before[2]) + 0.5) or y,
             i)
      end
      before = { x, y }
    end
  end
  local plain, out = o.colours == "ascii", {}
  local letters = "abcdefghijklmnopqrstuvwxyz"
  if o.title ~= "" then
    out[1] = o.title
  end
  for r = 0, high - 1 do
    local parts = {}
    for x = 0, wide - 1 do
      local cell = r * wide + x
      local who, bits = owner[cell], dots[cell]
      if not bits then
        parts[#parts + 1] = " "
      elseif plain then
        local at = (who - 1) % 26 + 1
        parts[#parts + 1] = who == 0 and "-" or letters:sub(at, at)
      else
        parts[#parts + 1] = ("\27[%dm%s\27[0m"):format(who == 0 and 90
          or COLOUR[(who - 1) % 8 + 1], utf8.char(0x2800 + bits))
      end
    end
    local label = ""
    if r == 0 or r == high - 1 or (r == high // 2 and not o.log) then
      label = svg.number(tonumber(("%.3g"):format(y1 - (y1 - y0) * r
                                                  / (high - 1))))
    end
    out[#out + 1] = ("%8s %s"):format(label, table.concat(parts))
                    :gsub("%s+$", "")
  end
  out[#out + 1] = ("%8s %-" .. wide // 2 .. "s%" .. wide - wide // 2 .. "s")
                  :format("", svg.number(x0) .. " " .. o.x, svg.number(x1))
  for i, s in ipairs(series) do
    local last = s.points[#s.points]
    local at = (i - 1) % 26 + 1
    out[#out + 1] = ("%8s %s  %-24s %s"):format("", plain
      and letters:sub(at, at) or ("\27[%dm━━\27[0m")
      :format(COLOUR[(i - 1) % 8 + 1]), s.name, last and svg.number(last[2])
      or "")
  end
  for _, b in ipairs(lines) do
    out[#out + 1] = ("%8s %s  %-24s %s"):format("", plain and "-" or
                    "\27[90m┈┈\27[0m", b[1], svg.number(b[2]))
  end
  return table.concat(out, "\n")
end

-- ---- bars ----

local BARS <const> = { title = "", note = "", unit = "", theme = "auto",
                       series = {}, width = 560 }

-- rows: { { name = , values = { a, b ... } } ... }, the same things in each.
function chart.bars(rows, given)
  local o = options("bars", given, BARS)
  if type(rows) ~= "table" or #rows == 0 or #rows > 400 then
    refuse("bars", "rows { name = , values = { ... } } are wanted, 400 at most")
  end
  local most, n, longest = 0, 0, 0
  for i, row in ipairs(rows) do
    local ok = type(row) == "table" and type(row.values) == "table"
               and #row.values <= 8
    for _, x in ipairs(ok and row.values or {}) do
      ok = ok and finite(x) and x >= 0
      most = ok and math.max(most, x) or most
    end
    if not ok or #row.values == 0 then
      refuse("bars", ("row %d: 1 to 8 numbers from 0 on are wanted"):format(i))
    end
    n = math.max(n, #row.values)
    longest = math.max(longest, utf8.len(tostring(row.name)) or 12)
  end
  most = most > 0 and most or 1
  local left, top = 40 + longest * 7.4, 34
  local high = math.max(n * 11 + 10, 22)
  top = top + (o.title ~= "" and 26 or 0) + (o.note ~= "" and 20 or 0)
  local bottom = top + 26 + #rows * high
  local c = svg.canvas(left + o.width + 120, bottom + 18, o.title ~= ""
                       and o.title or "bars", o.theme)
  if o.title ~= "" then
    c:text(28, 32, o.title, "ink title")
  end
  if o.note ~= "" then
    c:text(28, 54, o.note, "muted")
  end
  local x = left
  for i = 1, n do
    local name = tostring(o.series[i] or i)
    c:rect(x, top - 6, 12, 12, "f" .. i, 2)
    c:text(x + 18, top + 4, name, "ink")
    x = x + 40 + #name * 7.2
  end
  for _, tick in ipairs(svg.ticks(0, most, 6)) do
    local at = left + o.width * tick / most
    c:line(at, top + 18, at, bottom, "grid")
    c:text(at, bottom + 14, svg.number(tick) .. (tick == 0 and o.unit ~= ""
           and " " .. o.unit or ""), "muted small", "middle")
  end
  for i, row in ipairs(rows) do
    local y = top + 26 + (i - 1) * high
    c:text(left - 10, y + (n * 11) / 2 + 2, row.name, "ink", "end")
    for k, value in ipairs(row.values) do
      local w = o.width * value / most
      c:rect(left, y + (k - 1) * 11, math.max(w, 1), 10, "f" .. k, 1.5,
             ("%s, %s: %s %s"):format(row.name, o.series[k] or k,
                                      svg.number(value), o.unit))
      c:text(left + w + 6, y + (k - 1) * 11 + 9, svg.number(value),
             k == 1 and "ink small bold" or "muted small")
    end
    if n == 2 and row.values[1] > 0 and row.values[2] then
      c:text(left + o.width + 104, y + 14, ("%.1f×"):format(row.values[2]
             / row.values[1]), "ink bold", "end")
    end
  end
  return c:finish()
end

-- ---- roofline ----

local ROOF <const> = { title = "", theme = "auto", width = 620, height = 400 }

-- The kernels that v:bench measured, of one variant or several: where they lie
-- below what memory and products allow.
local function points_of(benches)
  local out = {}
  local function add(b, k, name)
    if finite(k.moved) and finite(k.flops) and finite(k.seconds)
       and k.moved > 0 and k.flops > 0 and k.seconds > 0 then
      out[#out + 1] = { x = k.flops / k.moved, y = k.flops / k.seconds,
                        name = #benches > 1
                        and ("%s, %s"):format(b.name, name) or name,
                        seconds = k.seconds,
                        tip = ("%s: %s in %s; %s moved%s"):format(name,
                          svg.amount(k.flops, "flop"), svg.seconds(k.seconds),
                          svg.amount(k.moved, "B"), k.counted and ", counted"
                          or ", as the plan has it") }
    end
  end
  for _, b in ipairs(benches) do
    local kernels = type(b) == "table" and type(b.kernels) == "table"
                    and b.kernels or {}
    local n = {}
    for _, k in ipairs(kernels) do
      n[k.call] = (n[k.call] or 0) + 1
    end
    for _, k in ipairs(kernels) do
      add(b, k, n[k.call] == 1 and k.call
          or ("%s: %d %s"):format(k.call, k.kernel, k.name))
    end
  end
  return out
end

function chart.roofline(benches, given)
  local o = options("roofline", given, ROOF)
  if type(benches) == "table" and benches.kernels then
    benches = { benches }
  end
  local points = type(benches) == "table" and points_of(benches) or {}
  local first = points[1] and benches[1]
  if not first or not finite(first.copy) or first.copy <= 0
     or #points > svg.MOST then
    refuse("roofline", "what v:bench() returned is wanted, or a list of it")
  end
  local peak = finite(first.peak) and first.peak > 0 and first.peak or nil
  local x0, x1, y1 = math.huge, 0, peak or 0
  local y0 = math.huge
  for _, p in ipairs(points) do
    x0, x1 = math.min(x0, p.x), math.max(x1, p.x)
    y0, y1 = math.min(y0, p.y), math.max(y1, p.y, p.x * first.copy)
  end
  local ridge = peak and peak / first.copy or x1
  local function down(x) return 10.0 ^ math.floor(math.log(x, 10)) end
  local function up(x) return 10.0 ^ math.ceil(math.log(x, 10) + 1e-9) end
  x0, x1 = down(math.min(x0, ridge) / 1.5), up(math.max(x1, ridge) * 1.5)
  y0 = down(math.min(y0, x0 * first.copy) / 1.2)
  y1 = up(y1 * 1.2)
  local left, top = 84, 84
  local right, bottom = left + o.width, top + o.height
  local title = o.title ~= "" and o.title or ("%s: %s"):format(first.name,
                                                              first.shape)
  local labels, longest = {}, 0
  for i, p in ipairs(points) do
    p.roof = math.min(p.x * first.copy, peak or math.huge)
    labels[i] = { class = (i - 1) % 8 + 1, text = ("%s  %.0f %%, %s"):format(
                  p.name, 100 * p.y / p.roof, svg.seconds(p.seconds)) }
    longest = math.max(longest, utf8.len(labels[i].text) or 0)
  end
  local c = svg.canvas(right + 50 + 7.2 * longest, bottom + 58, title, o.theme)
  local function px(x)
    return left + o.width * math.log(x / x0) / math.log(x1 / x0)
  end
  local function py(y)
    return bottom - o.height * math.log(y / y0) / math.log(y1 / y0)
  end
  c:text(left, 32, title, "ink title")
  c:text(left, 54, first.gpu and ("on %s; memory as a copy has it%s"):format(
         first.gpu, peak and ", products as plans price them" or "")
         or ("on this machine, %d threads; both roofs measured beside it")
         :format(first.threads or 1), "muted")
  for _, x in ipairs(svg.decades(x0, x1, 8)) do
    c:line(px(x), top, px(x), bottom, "grid")
    c:text(px(x), bottom + 19, svg.power(x), "muted small", "middle")
  end
  for _, y in ipairs(svg.decades(y0, y1, 8)) do
    c:line(left, py(y), right, py(y), "grid")
    c:text(left - 9, py(y) + 4, svg.amount(y, "flop/s"), "muted small", "end")
  end
  local knee = peak and ridge or x1
  c:curve({ { px(x0), py(x0 * first.copy) }, { px(knee),
          py(math.min(knee * first.copy, y1)) }, peak
          and { px(x1), py(peak) } or nil }, "line s8")
  local slope = math.deg(math.atan(py(x0) - py(x0 * 10), px(x0 * 10) - px(x0)))
  c:add('<text transform="translate(%s %s) rotate(%s)" class="muted">%s</text>',
        svg.at(px(x0 * 1.5)), svg.at(py(x0 * 1.5 * first.copy) - 8),
        svg.at(-slope), svg.escape("memory, " .. svg.amount(first.copy, "B/s")))
  if peak then
    c:text(right - 4, py(peak) - 8, "products, " .. svg.amount(peak, "flop/s"),
           "muted", "end")
  end
  for i, p in ipairs(points) do
    local l = labels[i]
    l.x, l.y = px(p.x), py(p.y)
    c:line(l.x, l.y, l.x, py(p.roof), "thin dashed line soft s" .. l.class)
    c:circle(l.x, l.y, 5.5, "f" .. l.class, p.tip)
  end
  spread(labels, 18, top, bottom)
  for _, l in ipairs(labels) do
    c:circle(right + 14, l.y, 4, "f" .. l.class)
    c:text(right + 24, l.y + 4, l.text, "ink")
  end
  c:text(right + 24, top - 14, "of its roof, and its time:", "muted small")
  c:line(left, bottom, right, bottom, "axis")
  c:line(left, top, left, bottom, "axis")
  c:text((left + right) / 2, bottom + 44, "flop per byte that its kernels move",
         "ink", "middle")
  return c:finish()
end

return chart
