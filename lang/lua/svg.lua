-- Drawings as SVG: a canvas on which modules put text, lines and shapes, the
-- colours of a light and of a dark page, and the marks of axes. A drawing
-- follows the page that shows it, unless one is asked for; on paper it is
-- light.
local svg = {}

svg.MOST = 4000                         -- points or bars in one drawing
svg.CHAR = 0.602                        -- width of a character, monospaced

-- class = { light, dark }: of series in the order in which they are used.
local SERIES <const> = {
  { "#2468b4", "#74b3ff" }, { "#d06a0a", "#ffab5e" }, { "#23804d", "#63d69a" },
  { "#8447b5", "#c9a2ff" }, { "#bd3347", "#ff8d98" }, { "#0c8289", "#52d5d7" },
  { "#7a6a15", "#e3cf6a" }, { "#5a6675", "#a9b4c2" },
}
local INK <const> = { "#1c2530", "#e7ebf0" }
local MUTED <const> = { "#5c6875", "#9aa6b4" }
local GRID <const> = { "#dfe4ea", "#2c343f" }
local PANEL <const> = { "#f5f7fa", "#1a2029" }
local EDGE <const> = { "#b9c3ce", "#445062" }
local GROUND <const> = { "#ffffff", "#11151b" }

-- Colours between: of amounts, of what lies below 0 and above it.
local RAMPS <const> = {
  p = { { "#fdecd6", "#f9c79a", "#ee8a66", "#cb4f6c", "#8d2b7e", "#4a1a6e",
          "#1f0d47" },
        { "#2b1a33", "#571f63", "#902a73", "#cc4468", "#f2795a", "#fdb974",
          "#fff3c9" } },
  n = { { "#dcebf7", "#a9cfea", "#6aaed9", "#2f83c0", "#1a5a9c", "#123c74",
          "#0a2149" },
        { "#15273a", "#1a4263", "#226796", "#3790c8", "#66b6e8", "#a3d8fa",
          "#e4f5ff" } },
  w = { { "#fdeadb", "#f8c7a3", "#ee9767", "#dd6837", "#b94518", "#862d0c",
          "#521906" },
        { "#33200f", "#643212", "#9c4a17", "#d26a26", "#f39350", "#fdbf8e",
          "#ffecda" } },
}
svg.LEVELS = 24

function svg.escape(s)
  return (tostring(s):gsub("[%z\1-\8\11\12\14-\31\127]", "?")
          :gsub("[&<>\"]", { ["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;",
                             ['"'] = "&quot;" }))
end

-- A number as a coordinate: short, never 1e5, never nan.
local function at(x)
  x = x == x and math.max(-1e6, math.min(1e6, x)) or 0
  return (("%.2f"):format(x):gsub("%.?0+$", ""))
end
svg.at = at

local function rgb(hex)
  return tonumber(hex:sub(2, 3), 16), tonumber(hex:sub(4, 5), 16),
         tonumber(hex:sub(6, 7), 16)
end

-- The colour at x of 0 to 1 along the stops.
local function between(stops, x)
  local i = math.min(#stops - 1, 1 + math.floor(x * (#stops - 1)))
  local part = x * (#stops - 1) - (i - 1)
  local r, g, b = rgb(stops[i])
  local r2, g2, b2 = rgb(stops[i + 1])
  return ("#%02x%02x%02x"):format(math.floor(r + part * (r2 - r) + 0.5),
    math.floor(g + part * (g2 - g) + 0.5),
    math.floor(b + part * (b2 - b) + 0.5))
end

-- The rules of one of the two pages; of the ramps those that are used.
local function rules(dark, ramps)
  local i, out = dark and 2 or 1, {}
  local function rule(...)
    out[#out + 1] = string.format(...)
  end
  rule(".ground{fill:%s}.ink{fill:%s}.muted{fill:%s}", GROUND[i], INK[i],
       MUTED[i])
  rule(".grid{stroke:%s}.axis{stroke:%s}.panel{fill:%s;stroke:%s}",
       GRID[i], EDGE[i], PANEL[i], EDGE[i])
  rule(".z{fill:%s}", dark and "#262529" or "#f1eeea")
  rule(".kept{fill:%s}.onbar{fill:%s}", dark and "#ffab5e" or "#a8500a",
       dark and "#0c1420" or "#ffffff")
  rule(".plain{fill:%s}.rule{stroke:%s}.halo{stroke:%s}", EDGE[i], MUTED[i],
       GROUND[i])
  for n, pair in ipairs(SERIES) do
    rule(".f%d{fill:%s}.s%d{stroke:%s}", n, pair[i], n, pair[i])
  end
  for _, name in ipairs(ramps) do
    for n = 1, svg.LEVELS do
      rule(".%s%d{fill:%s}", name, n,
           between(RAMPS[name][i], (n - 1) / (svg.LEVELS - 1)))
    end
  end
  return table.concat(out)
end

local STYLE <const> = [[
text{font-family:'DejaVu Sans','Helvetica Neue',Arial,sans-serif;font-size:12px}
text.mono{font-family:'DejaVu Sans Mono',Menlo,Consolas,monospace}
text.title{font-size:16px;font-weight:bold}text.small{font-size:11px}
text.bold{font-weight:bold}
.grid,.axis,.rule{fill:none;stroke-width:1}.line{fill:none;stroke-width:2;
stroke-linejoin:round;stroke-linecap:round}.thin{stroke-width:1.4}
.dashed{stroke-dasharray:5 4}.crisp{shape-rendering:crispEdges}
.soft{opacity:.55}.halo{fill:none;stroke-width:5}
]]

local canvas = {}
canvas.__index = canvas

-- theme: "auto" (as the page is), "light" or "dark".
function svg.canvas(width, height, title, theme)
  return setmetatable({ width = width, height = height, title = title,
                        theme = theme, ramps = {}, parts = {} }, canvas)
end

function canvas:add(...)
  self.parts[#self.parts + 1] = string.format(...)
end

-- anchor: "start", "middle" or "end".
function canvas:text(x, y, text, class, anchor)
  text = svg.escape(text)
  self:add('<text x="%s" y="%s" class="%s"%s%s>%s</text>', at(x), at(y),
           class or "ink", anchor and anchor ~= "start"
           and (' text-anchor="%s"'):format(anchor) or "",
           text:find "  " and ' xml:space="preserve"' or "", text)
end

function canvas:upright(x, y, text, class)
  self:add('<text transform="translate(%s %s) rotate(-90)" class="%s" '
           .. 'text-anchor="middle">%s</text>', at(x), at(y), class or "ink",
           svg.escape(text))
end

function canvas:line(x1, y1, x2, y2, class)
  self:add('<path d="M%s %sL%s %s" class="%s"/>', at(x1), at(y1), at(x2),
           at(y2), class)
end

-- tip: what a pointer on it is told.
function canvas:rect(x, y, w, h, class, round, tip)
  self:add('<rect x="%s" y="%s" width="%s" height="%s"%s class="%s"%s',
           at(x), at(y), at(math.max(w, 0)), at(math.max(h, 0)),
           round and (' rx="%s"'):format(at(round)) or "", class,
           tip and ("><title>%s</title></rect>"):format(svg.escape(tip))
           or "/>")
end

function canvas:path(d, class)
  self:add('<path d="%s" class="%s"/>', d, class)
end

function canvas:circle(x, y, r, class, tip)
  self:add('<circle cx="%s" cy="%s" r="%s" class="%s"%s', at(x), at(y), at(r),
           class, tip and ("><title>%s</title></circle>")
           :format(svg.escape(tip)) or "/>")
end

-- points: { { x, y }, ... }
function canvas:curve(points, class)
  local d = {}
  for i, p in ipairs(points) do
    d[i] = (i == 1 and "M" or "L") .. at(p[1]) .. " " .. at(p[2])
  end
  self:path(table.concat(d), class)
end

function canvas:finish()
  local dark = self.theme == "dark"
  local style = rules(dark, self.ramps)
  if self.theme == "auto" then
    style = style .. "\n@media (prefers-color-scheme:dark){"
            .. rules(true, self.ramps) .. "}"
  end
  return ('<svg xmlns="http://www.w3.org/2000/svg" width="%s" height="%s" '
    .. 'viewBox="0 0 %s %s" role="img">\n<title>%s</title>\n<style>%s%s'
    .. '</style>\n<rect width="100%%" height="100%%" class="ground"/>\n%s\n'
    .. '</svg>\n'):format(at(self.width), at(self.height), at(self.width),
      at(self.height), svg.escape(self.title), STYLE, style,
      table.concat(self.parts, "\n"))
end

-- ---- axes ----

-- Numbers at round steps from lo to hi, about n of them.
function svg.ticks(lo, hi, n)
  local span = hi - lo
  if not (span > 0) or span == math.huge then
    return { lo }
  end
  local step = 10.0 ^ math.floor(math.log(span / n, 10))
  for _, factor in ipairs { 2, 5, 10 } do
    if span / step > n * 1.01 then
      step = step * (factor == 2 and 2 or factor == 5 and 2.5 or 2)
    end
  end
  local out, first = {}, math.ceil(lo / step - 1e-9)
  for i = 0, 2 * n + 2 do
    local x = (first + i) * step
    if x > hi + 1e-9 * span then
      break
    end
    out[#out + 1] = x
  end
  return out
end

-- Powers of ten from lo to hi, at most n or so.
function svg.decades(lo, hi, n)
  local first = math.ceil(math.log(lo, 10) - 1e-9)
  local last = math.floor(math.log(hi, 10) + 1e-9)
  local out, step = {}, math.max(1, math.ceil((last - first + 1) / n))
  for e = first, last, step do
    out[#out + 1] = 10.0 ^ e
  end
  return out
end

-- Token positions, from 0: steps of 1, 2, 4, 8 ..., n at most.
function svg.positions(count, n)
  local step, out = 1, {}
  while count / step > n do
    step = step * 2
  end
  for i = 0, count - 1, step do
    out[#out + 1] = i
  end
  return out
end

local SUPER <const> = { ["-"] = "⁻", ["0"] = "⁰", ["1"] = "¹",
                        ["2"] = "²", ["3"] = "³", ["4"] = "⁴",
                        ["5"] = "⁵", ["6"] = "⁶", ["7"] = "⁷",
                        ["8"] = "⁸", ["9"] = "⁹" }

-- A power of ten as "0.01", "1000", or "10⁻⁶" where that is short.
function svg.power(x)
  local e = math.floor(math.log(x, 10) + 0.5)
  if e >= -2 and e <= 3 then
    return ("%g"):format(x)
  end
  return "10" .. ("%d"):format(e):gsub(".", SUPER)
end

function svg.number(x)
  if x == 0 then
    return "0"
  end
  return (("%.4g"):format(x):gsub("e%+?(-?)0*(%d+)$", "e%1%2"))
end

-- 34168 as "34,168".
function svg.grouped(x)
  local text = ("%.0f"):format(x)
  repeat
    local n
    text, n = text:gsub("^(-?%d+)(%d%d%d)", "%1,%2")
  until n == 0
  return text
end

local UNITS <const> = { { 1e12, "T" }, { 1e9, "G" }, { 1e6, "M" },
                        { 1e3, "k" } }

-- 1234567 -> "1.23 M"
function svg.amount(x, unit)
  for _, u in ipairs(UNITS) do
    if x >= u[1] * 0.9995 then
      return ("%.3g %s%s"):format(x / u[1], u[2], unit)
    end
  end
  return ("%.3g %s"):format(x, unit)
end

-- The unit in which seconds are said, and its name.
function svg.time_unit(s)
  for _, u in ipairs { { 1, "s" }, { 1e-3, "ms" }, { 1e-6, "µs" } } do
    if s >= u[1] * 0.9995 then
      return u[1], u[2]
    end
  end
  return 1e-9, "ns"
end

function svg.seconds(s)
  local unit, name = svg.time_unit(s)
  return ("%.3g %s"):format(s / unit, name)
end

-- ---- what modules are asked ----

-- The options given, with what is usual where they say nothing; others are
-- refused. Errors blame the caller of the function that asks.
function svg.options(what, given, usual)
  local out = {}
  if given ~= nil and type(given) ~= "table" then
    error(("%s: a table of options is wanted, not a %s")
          :format(what, type(given)), 4)
  end
  for name, x in pairs(usual) do
    out[name] = x
  end
  for name, x in next, given or {} do
    if usual[name] == nil then
      local names = {}
      for known in pairs(usual) do
        names[#names + 1] = known
      end
      table.sort(names)
      error(("%s: there is no option '%s'\n  help: it takes %s")
            :format(what, tostring(name), table.concat(names, ", ")), 4)
    end
    if usual[name] and type(x) ~= type(usual[name]) then
      error(("%s: %s must be a %s, not a %s"):format(what, name,
            type(usual[name]), type(x)), 4)
    end
    out[name] = x
  end
  if out.theme and out.theme ~= "auto" and out.theme ~= "light"
     and out.theme ~= "dark" then
    error(("%s: no theme '%s'\n  help: auto, light, dark")
          :format(what, out.theme), 4)
  end
  return out
end

return svg
