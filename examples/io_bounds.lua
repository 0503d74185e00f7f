-- io_bounds.lua -- how few words attention's backward pass can move.
--
--   flin examples/io_bounds.lua [PLOT.svg]
--
-- Plays the two schedules of arXiv:2410.09397 as red-blue pebble games for a
-- small n: what they count is what they move, and their gradients are right.
-- Then counts both over the head size d, the fast memory M and the share of
-- pairs that attend (a band), and draws words moved a pair over M / d^2: the
-- curves of all d nearly fall on one, and cross near one M / d^2. At the end
-- the bounds of two layers of the standard library, beside their plans.
local flin = require "flin"
local attention = flin.pebble.attention

local path = arg[1] or "io_bounds.svg"
local WAYS <const> = { "blocks", "tiles" }
local SIZES <const> = { 32, 64, 128, 256 }
local COLORS <const> = { "#1b6ca8", "#d1495b", "#3c9d6b", "#7b4fa3" }
local SHARES <const> = { 1, 1 / 2, 1 / 4 }
local STEP <const> = 1.06                       -- from one M to the next
local FROM <const>, TO <const> = 0.15, 12       -- M / d^2

-- ---- games ----

local function play()
  print("played, n = 24, d = 8:")
  print("  M    way     pairs      words in     out  peak  gradients off by")
  local ok = true
  for _, words in ipairs { 70, 150, 400 } do
    for _, window in ipairs { 24, 6 } do
      for _, way in ipairs(WAYS) do
        local a = { n = 24, d = 8, words = words, window = window, way = way }
        local counted = attention(a)
        a.play = true
        local game = attention(a)
        ok = ok and counted.io == game.io and game.peak <= words
             and game.error < 1e-12
        print(("  %-4d %-7s |i-j| < %-3d %8d %7d  %4d  %.0e"):format(words,
              way, window, game.loads, game.stores, game.peak, game.error))
      end
    end
  end
  assert(ok, "a count differs from its game")
end

-- ---- the sweep ----

-- Pairs with |i - j| < w.
local function pairs_within(n, w) return n * (2 * w - 1) - w * (w - 1) end

-- The width of the band that holds this share of all pairs.
local function window_of(n, share)
  local w = 1
  while w < n and pairs_within(n, w) < share * n * n do w = w + 1 end
  return w
end

-- { x = M / d^2, blocks =, tiles = words a pair } for each M
local function sweep(d, share)
  local n = math.floor(8 * d / share)           -- a band is 4 d wide or more
  local window = window_of(n, share)
  local count, points = pairs_within(n, window), {}
  local x = FROM
  while x < TO do
    local words = math.floor(x * d * d)
    local point = { x = words / (d * d) }
    for _, way in ipairs(WAYS) do
      local ok, a = pcall(attention, { n = n, d = d, words = words,
                                       window = window, way = way })
      point[way] = ok and a.io / count or nil
    end
    points[#points + 1] = point
    x = x * STEP
  end
  return points
end

-- The M / d^2 from which on blocks move no more, between two points. Beside
-- blocks and tiles a few rows lie in fast memory: about 3 / d of d^2.
local function crossing(points)
  for i = #points, 2, -1 do
    local p, q = points[i - 1], points[i]
    if not p.blocks or p.blocks > p.tiles then
      local a = math.log((p.blocks or p.tiles) / p.tiles)
      local b = math.log(q.blocks / q.tiles)
      return p.x * (q.x / p.x) ^ (a / (a - b))
    end
  end
end

-- ---- the plot ----

local W <const>, H <const>, LEFT <const>, TOP <const> = 300, 300, 62, 74
local HIGH <const>, LOW <const> = 200, 2        -- words a pair

local function across(panel, x)
  return LEFT + panel * (W + 26)
         + W * math.log(x / FROM) / math.log(TO / FROM)
end
local function down(y) return TOP + H * math.log(HIGH / y)
                                    / math.log(HIGH / LOW) end

local svg = {}
local function draw(...) svg[#svg + 1] = string.format(...) end

local function label(x, y, anchor, text, ...)
  draw('<text x="%.1f" y="%.1f" text-anchor="%s">%s</text>', x, y, anchor,
       text:format(...))
end

local function line(points, style)
  local at = {}
  for i, p in ipairs(points) do
    at[i] = ("%.1f,%.1f"):format(p[1], p[2])
  end
  draw('<polyline fill="none" points="%s" %s/>', table.concat(at, " "), style)
end

local function curve(panel, points, way, style)
  local at = {}
  for _, p in ipairs(points) do
    if p[way] and p[way] < HIGH and p[way] > LOW then
      at[#at + 1] = { across(panel, p.x), down(p[way]) }
    end
  end
  line(at, style)
end

local function frame(panel, share)
  local x0, x1 = across(panel, FROM), across(panel, TO)
  draw('<rect x="%.1f" y="%d" width="%d" height="%d" fill="none" '
       .. 'stroke="#888"/>', x0, TOP, W, H)
  label((x0 + x1) / 2, TOP - 10, "middle", share == 1 and "all pairs"
        or "a band of %g of the pairs", share)
  for _, x in ipairs { 0.25, 0.5, 1, 2, 4, 8 } do
    line({ { across(panel, x), TOP }, { across(panel, x), TOP + H } },
         'stroke="#eee"')
    label(across(panel, x), TOP + H + 16, "middle", "%g", x)
  end
  label((x0 + x1) / 2, TOP + H + 36, "middle", "M / d²")
  for _, y in ipairs { 2, 5, 10, 20, 50, 100, 200 } do
    line({ { x0, down(y) }, { x1, down(y) } }, 'stroke="#eee"')
    if panel == 0 then label(x0 - 6, down(y) + 4, "end", "%g", y) end
  end
end

-- The proved order of growth, its constant chosen so that it is seen: d^2 / M
-- a pair from M = d^2 on, d / sqrt(M) below.
local function bound(panel)
  local points = {}
  for i = 0, 60 do
    local x = FROM * (TO / FROM) ^ (i / 60)
    local y = 6 * (x >= 1 and 1 / x or x ^ -0.5)
    if y > LOW then points[#points + 1] = { across(panel, x), down(y) } end
  end
  line(points, 'stroke="#333" stroke-width="1" stroke-dasharray="1 3"')
end

local function legend()
  local x = LEFT
  label(x, 20, "start", "attention's backward pass: words moved for each pair "
        .. "(i, j), against fast memory of M words")
  for i, d in ipairs(SIZES) do
    line({ { x, 38 }, { x + 20, 38 } },
         ('stroke="%s" stroke-width="2"'):format(COLORS[i]))
    label(x + 25, 42, "start", "d = %d", d)
    x = x + 90
  end
  line({ { x, 38 }, { x + 20, 38 } }, 'stroke="#555" stroke-width="2"')
  label(x + 25, 42, "start", "blocks in fast memory")
  line({ { x + 190, 38 }, { x + 210, 38 } },
       'stroke="#555" stroke-width="2" stroke-dasharray="6 3"')
  label(x + 215, 42, "start", "n × n in √M tiles")
  line({ { x + 350, 38 }, { x + 370, 38 } },
       'stroke="#333" stroke-dasharray="1 3"')
  label(x + 375, 42, "start", "proved order")
end

-- Whole blocks and tiles should leave a rest of order 1 / d: the line c0 +
-- c1 / d through all crossings, and how far the farthest of them is from it.
local function limit(found)
  local n, x, y, xx, xy, off = #found, 0, 0, 0, 0, 0
  for _, p in ipairs(found) do
    local u = 1 / p.d
    x, y, xx, xy = x + u, y + p.c, xx + u * u, xy + u * p.c
  end
  local c1 = (n * xy - x * y) / (n * xx - x * x)
  local c0 = (y - c1 * x) / n
  for _, p in ipairs(found) do
    off = math.max(off, math.abs(p.c / (c0 + c1 / p.d) - 1))
  end
  return c0, c1, off
end

local function plot()
  local width = LEFT + #SHARES * (W + 26) + 10
  draw('<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" '
       .. 'viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">',
       width, TOP + H + 50, width, TOP + H + 50)
  draw '<rect width="100%%" height="100%%" fill="white"/>'
  legend()
  print "\nblocks move no more than tiles from M = c d^2 on:"
  local all = {}
  for s, share in ipairs(SHARES) do
    local found = {}
    frame(s - 1, share)
    bound(s - 1)
    for i, d in ipairs(SIZES) do
      local points = sweep(d, share)
      local color = ('stroke="%s" stroke-width="1.5"'):format(COLORS[i])
      curve(s - 1, points, "blocks", color)
      curve(s - 1, points, "tiles", color .. ' stroke-dasharray="6 3"')
      local c = crossing(points)
      found[i] = ("d = %d: %.2f"):format(d, c)
      all[#all + 1] = { d = d, c = c }
      line({ { across(s - 1, c), TOP + H }, { across(s - 1, c), TOP + H - 9 } },
           color)
    end
    print(("  %-4g of the pairs: %s"):format(share,
                                             table.concat(found, ", ")))
  end
  draw '</svg>'
  local file <close> = assert(io.open(path, "w"))
  file:write(table.concat(svg, "\n"), "\n")
  print("  plot: " .. path)
  return limit(all)
end

play()
local c0, c1, off = plot()
print(("  c = %.2f + %.1f / d fits them to %.0f %%: not one c for these d, but "
       .. "one limit\n"):format(c0, c1, 100 * off))
print(flin.stdlib.simple_gla:io { T = 16384, K = 128, V = 128 })
print(flin.stdlib.gated_deltanet:io { T = 16384, K = 128, V = 128,
                                      backward = true })
os.exit(off < 0.06 and 0 or 1)
