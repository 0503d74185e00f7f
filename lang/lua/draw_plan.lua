-- flin.picture.plan: a plan's kernels along the time that they are predicted
-- to take, what each computes, and what moves between them.
local flin, own = ...
local svg = own.load "lang/lua/svg" (flin, own)

local WIDE <const> = 104                -- characters in a line
local FONT <const> = 12
local ROW <const>, PAD <const>, GAP <const> = 18, 16, 30
local LEFT <const> = 32
local LANE <const> = 22                 -- between the edges at the right
local TOP <const> = 74
local CHAR <const> = FONT * svg.CHAR

local function bytes_text(x)
  return (x < 100 and x % 1 ~= 0 and svg.number(x) or svg.grouped(x)) .. " B"
end

-- The text in lines of at most `most` characters, broken behind commas and
-- signs; those that follow are indented.
local function wrapped(text, most, indent)
  local lines, rest = {}, text
  while #rest > most do
    local at
    for i = most, most // 2, -1 do
      local c = rest:sub(i, i)
      if c == " " or c == "*" or c == "(" then
        at = i
        break
      end
    end
    at = at or most
    lines[#lines + 1] = (rest:sub(1, at):gsub(" $", ""))
    rest = (" "):rep(indent) .. rest:sub(at + 1)
  end
  lines[#lines + 1] = rest
  return lines
end

-- "q 256 B, k 256 B": arguments in lines.
local function list_text(list, most)
  local lines, line = {}, ""
  for i, t in ipairs(list) do
    local piece = t.name .. (t.bytes > 0 and " " .. bytes_text(t.bytes)
                             or " (once a head)")
                  .. (i < #list and "  ·  " or "")
    if line ~= "" and utf8.len(line .. piece) > most then
      lines[#lines + 1] = line
      line = ""
    end
    line = line .. piece
  end
  lines[#lines + 1] = line ~= "" and line or nil
  return lines
end

-- What stands in a kernel's card, from top to bottom: { text, class, port =
-- tensor that an edge goes to or comes from, out = it leaves here }.
local function card_of(kernel, index)
  local rows = {}
  local function row(text, class, port, out)
    rows[#rows + 1] = { text = text, class = class, port = port, out = out }
  end
  local given, kept, results = {}, {}, {}
  for _, t in ipairs(kernel.arguments) do
    if t.from > 0 and t.from < index then
      kept[#kept + 1] = t
    else
      given[#given + 1] = t
    end
  end
  local function labelled(what, lines)
    for i, text in ipairs(lines) do
      row((i == 1 and what or "          ") .. text, "mono muted")
    end
  end
  labelled("reads     ", list_text(given, WIDE - 10))
  for _, t in ipairs(kept) do
    row(("reads     %s %s, from kernel %d"):format(t.name, bytes_text(t.bytes),
                                                  t.from), "mono kept", t)
  end
  row(nil)
  local wide = 1
  for _, l in ipairs(kernel.lines) do
    wide = math.max(wide, math.min(#l.name, 12))
  end
  for _, l in ipairs(kernel.lines) do
    local text = ("%-" .. wide .. "s = %s"):format(l.name, l.text)
    local lines = wrapped(text, WIDE - 14, wide + 3)
    for i, part in ipairs(lines) do
      row(part, l.again and "mono muted" or "mono ink")
      rows[#rows].axes = i == 1 and "[" .. l.axes .. "]" or nil
      rows[#rows].again = i == 1 and l.again or nil
    end
  end
  row(nil)
  for _, t in ipairs(kernel.results) do
    if t.kept then
      row(("keeps     %s %s"):format(t.name, bytes_text(t.bytes)),
          "mono kept", t, true)
    else
      results[#results + 1] = t
    end
  end
  labelled("writes    ", list_text(results, WIDE - 10))
  return rows
end

-- ---- edges ----

-- { name, from = y, to = { y, ... } }: of each tensor kept, in lanes such that
-- none crosses another that runs beside it.
local function edges_of(cards)
  local edges, of = {}, {}
  for _, card in ipairs(cards) do
    for _, row in ipairs(card.rows) do
      if row.port and row.out then
        local e = { name = row.port.name, from = row.y, to = {},
                    bytes = row.port.bytes }
        edges[#edges + 1], of[e.name] = e, e
      elseif row.port and of[row.port.name] then
        table.insert(of[row.port.name].to, row.y)
      end
    end
  end
  local busy = {}
  for i = #edges, 1, -1 do              -- the last begun is the innermost
    local e, lane = edges[i], 1
    local last = e.to[#e.to] or e.from
    while busy[lane] do
      local free = true
      for _, other in ipairs(busy[lane]) do
        free = free and (other[2] < e.from - 2 or other[1] > last + 2)
      end
      if free then break end
      lane = lane + 1
    end
    busy[lane] = busy[lane] or {}
    table.insert(busy[lane], { e.from, last })
    e.lane = lane
  end
  return edges, #busy
end

local function draw_edges(c, edges, right)
  for i, e in ipairs(edges) do
    local x, class = right + 4 + e.lane * LANE, "s" .. (i - 1) % 7 + 1
    local last = e.to[#e.to]
    if last then
      c:path(("M%s %sH%sQ%s %s %s %sV%s"):format(svg.at(right),
        svg.at(e.from), svg.at(x - 8), svg.at(x), svg.at(e.from), svg.at(x),
        svg.at(e.from + 8), svg.at(last - 8)), "line thin " .. class)
    end
    for _, y in ipairs(e.to) do
      c:path(("M%s %sQ%s %s %s %sH%s"):format(svg.at(x), svg.at(y - 8),
        svg.at(x), svg.at(y), svg.at(x - 8), svg.at(y), svg.at(right + 7)),
        "line thin " .. class)
      c:path(("M%s %sl8 -4v8z"):format(svg.at(right + 1), svg.at(y)),
             "f" .. (i - 1) % 7 + 1)
    end
    c:circle(right, e.from, 3.5, "f" .. (i - 1) % 7 + 1,
             e.name .. ", " .. bytes_text(e.bytes))
  end
end

-- ---- the timeline ----

local PARTS <const> = { { "load", "f6" }, { "ahead", "f4" },
                        { "serial", "f2" } }

-- A bar a kernel, as wide as it takes; below it what the chip's parts do.
local function timeline(c, plan, y, width)
  local total = 0
  for _, k in ipairs(plan.kernels) do
    total = total + k.seconds
  end
  local from, to = LEFT + 66, LEFT + width
  local function at(s) return from + (to - from) * s / total end
  local spent = 0
  for i, k in ipairs(plan.kernels) do
    local x, w = at(spent), at(k.seconds) - from
    c:rect(x + 0.5, y, w - 1, 26, "f1", 3, ("%d: %s, %s"):format(i, k.name,
           svg.seconds(k.seconds)))
    local label = ("%d %s  %s"):format(i, k.name, svg.seconds(k.seconds))
    if #label * CHAR < w - 12 then
      c:text(x + w / 2, y + 17, label, "onbar bold", "middle")
    elseif w > 14 then
      c:text(x + w / 2, y + 17, i, "onbar bold", "middle")
    end
    for n, part in ipairs(PARTS) do
      c:rect(x + 0.5, y + 22 + n * 15, at(k[part[1]]) - from, 9, part[2], 2,
             part[1] .. " " .. svg.seconds(k[part[1]]))
    end
    spent = spent + k.seconds
  end
  c:text(LEFT, y + 17, "kernels", "ink small")
  for n, part in ipairs(PARTS) do
    c:text(LEFT, y + 30 + n * 15, part[1], "muted small")
  end
  local base = y + 84
  c:line(from, base, to, base, "axis")
  local unit, name = svg.time_unit(total)
  for _, s in ipairs(svg.ticks(0, total / unit, 8)) do
    local x = at(s * unit)
    c:line(x, base, x, base + 5, "axis")
    c:text(x, base + 18, svg.number(s), "muted small", "middle")
  end
  c:text(to, base + 34, ("predicted %s a token and head, where the machine is "
         .. "full"):format(name), "muted small", "end")
end

-- ---- all of it ----

local KIND <const> = { forward = "walks the chunks", token = "all at once",
                       reverse = "walks the chunks backwards" }

local function place(plan, y)
  local cards = {}
  for i, kernel in ipairs(plan.kernels) do
    local rows = card_of(kernel, i)
    local card = { rows = rows, top = y, kernel = kernel, index = i }
    y = y + 40
    for _, row in ipairs(rows) do
      row.y = y
      y = y + (row.text and ROW or ROW / 2)
    end
    card.bottom = y
    y = y + GAP
    cards[i] = card
  end
  return cards, y
end

local function draw_card(c, card, width)
  local k = card.kernel
  c:rect(LEFT, card.top, width, card.bottom - card.top, "panel", 6)
  c:text(LEFT + PAD, card.top + 22, ("%d  %s"):format(card.index, k.name),
         "ink bold")
  c:text(LEFT + PAD + (#k.name + 5) * CHAR, card.top + 22, KIND[k.kind],
         "muted")
  c:text(LEFT + width - PAD, card.top + 22, ("%s in, %s out, %s"):format(
         bytes_text(k.reads), bytes_text(math.max(0, k.bytes - k.reads)),
         svg.amount(k.flops, "flop")), "muted", "end")
  for _, row in ipairs(card.rows) do
    if row.text then
      c:text(LEFT + PAD, row.y + 4, row.text, row.class)
    end
    if row.axes then
      c:text(LEFT + width - PAD, row.y + 4, row.axes
             .. (row.again and "  again" or ""), "mono muted", "end")
    end
  end
end

-- plan: what v:plan returned.
local function draw(plan, o)
  local width = WIDE * CHAR + 2 * PAD
  local cards, bottom = place(plan, TOP + 148)
  local edges, lanes = edges_of(cards)
  local title = o.title ~= "" and o.title or plan.title
  local c = svg.canvas(LEFT + width + 24 + lanes * LANE + 12, bottom, title,
                       o.theme)
  c:text(LEFT, 30, title, "ink title")
  c:text(LEFT, 52, plan.note and ("%s a token and head, token by token: %s")
         :format(bytes_text(plan.bytes), plan.note:match "[^\n]*")
         or ("%s a token and head, %s with a kernel for each product; %s kept "
         .. "between kernels at most; chunks of %d tokens"):format(
         bytes_text(plan.bytes), bytes_text(plan.unfused_bytes),
         bytes_text(plan.peak_bytes), plan.chunk), "muted")
  timeline(c, plan, TOP, width)
  for _, card in ipairs(cards) do
    draw_card(c, card, width)
  end
  draw_edges(c, edges, LEFT + width)
  return c:finish()
end

local OWN <const> = { theme = "auto", title = "" }

return function (v, options)
  local drawing, rest = {}, {}
  if type(v) ~= "userdata" or flin.is_tensor(v) or not v.plan then
    error("flin.picture.plan: a variant is wanted, not a " .. type(v), 3)
  elseif options ~= nil and type(options) ~= "table" then
    error("flin.picture.plan: a table of options is wanted, not a "
          .. type(options), 3)
  end
  for name, x in next, options or {} do
    if OWN[name] then
      drawing[name] = x
    elseif name ~= "format" then
      rest[name] = x
    end
  end
  local o = svg.options("flin.picture.plan", drawing, OWN)
  local plan = v:plan(rest)
  plan.title = ("%s on %s: %s"):format(v.name, plan.machine, rest.backward
               and "forward and backward" or "forward")
  return draw(plan, o)
end
