-- v:dag { format = "svg" }: the step's graph as lines of assignments, with an
-- arc from each to those that use it.
local flin, own = ...
local svg = own.load "lang/lua/svg" (flin, own)

local FONT <const>, ROW <const>, TOP <const> = 12, 24, 86
local CHAR <const> = FONT * svg.CHAR
local OWN <const> = { theme = "auto", title = "" }

-- Lanes for arcs, such that the short ones run close to the text and none runs
-- over another.
local function lanes_of(arcs)
  table.sort(arcs, function (a, b)
    local la, lb = a.to - a.from, b.to - b.from
    return la < lb or (la == lb and a.from < b.from)
  end)
  local busy = {}
  for _, arc in ipairs(arcs) do
    local lane = 1
    while true do
      local free = true
      for _, other in ipairs(busy[lane] or {}) do
        free = free and (other.to <= arc.from or other.from >= arc.to
                         or other.from == arc.from)
      end
      if free then break end
      lane = lane + 1
    end
    busy[lane] = busy[lane] or {}
    table.insert(busy[lane], arc)
    arc.lane = lane
  end
  return #busy
end

-- Where each line is used by others below it.
local function arcs_of(lines)
  local at, arcs = {}, {}
  for i, l in ipairs(lines) do
    local seen = {}
    for word in l.text:gmatch "[%a_][%w_]*" do
      local from = at[word]
      if from and not seen[word] then
        seen[word] = true
        arcs[#arcs + 1] = { from = from, to = i }
      end
    end
    at[l.name] = i
  end
  return arcs
end

local function graphviz(name, lines, arcs)
  local function quoted(s)
    return '"' .. svg.escape(s) .. '"'
  end
  local out = { ("digraph %s {\n  node [shape=box, fontname=monospace, "
                 .. "fontsize=10];"):format(quoted(name)) }
  for i, l in ipairs(lines) do
    out[#out + 1] = ("  n%d [label=%s];"):format(i, quoted(("%s = %s")
                    :format(l.name, l.text)))
  end
  for _, a in ipairs(arcs) do
    out[#out + 1] = ("  n%d -> n%d [label=%s];"):format(a.from, a.to,
                    quoted("[" .. lines[a.from].axes .. "]"))
  end
  return table.concat(out, "\n") .. "\n}\n"
end

local function draw(name, lines, o)
  local arcs = arcs_of(lines)
  local lanes = lanes_of(arcs)
  local left = 40 + lanes * 13
  local named, longest = 1, 1
  for _, l in ipairs(lines) do
    named, longest = math.max(named, #l.name), math.max(longest, #l.text)
  end
  local width = left + (named + longest + 3) * CHAR + 190
  local title = o.title ~= "" and o.title or name .. ": one token"
  local c = svg.canvas(width, TOP + #lines * ROW + 10, title, o.theme)
  c:text(40, 30, title, "ink title")
  c:text(40, 52, "each line with its axes and where the step says it; an arc "
         .. "runs to the lines that use it", "muted")
  for i, l in ipairs(lines) do
    local y = TOP + (i - 1) * ROW
    local root = l.name:find "^next " or l.out
    c:text(left, y + 4, ("%-" .. named .. "s = %s"):format(l.name, l.text),
           root and "mono kept bold" or "mono ink")
    c:text(width - 110, y + 4, "[" .. l.axes .. "]", "mono muted", "end")
    if l.line then
      c:text(width - 30, y + 4, "line " .. l.line, "muted small", "end")
    end
  end
  for _, a in ipairs(arcs) do
    local class = "s" .. (a.from - 1) % 7 + 1
    local y, below = TOP + (a.from - 1) * ROW, TOP + (a.to - 1) * ROW
    local x = left - 10 - a.lane * 13
    c:path(("M%s %sH%sQ%s %s %s %sV%sQ%s %s %s %sH%s"):format(
      svg.at(left - 6), svg.at(y + 3), svg.at(x + 7), svg.at(x),
      svg.at(y + 3), svg.at(x), svg.at(y + 10), svg.at(below - 10), svg.at(x),
      svg.at(below - 3), svg.at(x + 7), svg.at(below - 3), svg.at(left - 11)),
      "line thin " .. class)
    c:path(("M%s %sl-7 -3.5v7z"):format(svg.at(left - 4), svg.at(below - 3)),
           "f" .. (a.from - 1) % 7 + 1)
  end
  return c:finish()
end

-- lines: { name, text, axes, line, out }, as v:dag writes them.
return function (name, lines, options, format)
  if format == "dot" then
    return graphviz(name, lines, arcs_of(lines))
  end
  return draw(name, lines, svg.options("dag", options, OWN))
end
