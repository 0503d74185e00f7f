-- io_bounds.lua -- how few words attention's backward pass can move.
--
--   flin examples/io_bounds.lua [PLOT.svg]
--
-- Plays the two schedules of arXiv:2410.09397 as red-blue pebble games for a
-- small n: what they count is what they move, and their gradients are right.
-- Then counts both over the head size d, the fast memory M and the share of
-- pairs that attend (a band), and draws words moved a pair. As kernels of a GPU
-- tests/bench/pair_ways.lua runs them.
--
-- Blocks in fast memory: for dK and dV a row brings its q, dO and two numbers
-- past a part of the columns, each 4 d + 2 words (k, v, dk, dv, and P and dP
-- of the row); for dQ a column brings k and v past rows of 3 d + 4. Beside the
-- part lie the d words of q, or of k, which are wanted twice. n x n in tiles:
-- five products, a row past columns or results of d words each, and six times
-- an entry of n x n. With m = M - d - 2 that is, a pair,
--
--   (2d + 2) (4d + 2) / m + 2d (3d + 4) / m  and  6 + (2 (d + 1) d + 3 d^2) / m
--
-- and equal at M = 3/2 (d + 4/3)^2: one c for all d in this form, c = 3/2 in
-- M = c d^2 for large d, and above it by 4 / d for what lies beside the parts.
-- Whole rows and columns make stairs of the counts, of a width of 4 d words.
local flin = require "flin"
local attention = flin.pebble.attention

local path = arg[1] or "io_bounds.svg"
local WAYS <const> = { "blocks", "tiles" }
local SIZES <const> = { 16, 32, 64, 128, 256 }
local COLORS <const> = { "#d08c1d", "#1b6ca8", "#d1495b", "#3c9d6b", "#7b4fa3" }
local SHARES <const> = { 1, 1 / 2, 1 / 4 }
local STEP <const> = 1.06                       -- from one M to the next
local FROM <const>, TO <const> = 0.25, 12       -- M / (d + 4/3)^2

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

local function square(d) return (d + 4 / 3) ^ 2 end

-- Pairs with |i - j| < w.
local function pairs_within(n, w) return n * (2 * w - 1) - w * (w - 1) end

-- The width of the band that holds this share of all pairs.
local function window_of(n, share)
  local w = 1
  while w < n and pairs_within(n, w) < share * n * n do w = w + 1 end
  return w
end

-- Words a pair, or nil where the way does not work in so little memory: as a
-- function of way and words. A band is 128 d wide or more.
local function counter(d, share)
  local n = math.floor(256 * d / share)
  local window = window_of(n, share)
  local count = pairs_within(n, window)
  return function (way, words)
    local ok, a = pcall(attention, { n = n, d = d, words = words,
                                     window = window, way = way })
    return ok and a.io / count or nil
  end
end

-- { x = M / (d + 4/3)^2, blocks =, tiles = words a pair } for each M
local function sweep(d, moved)
  local points, x = {}, FROM
  while x < TO do
    local words = math.floor(x * square(d))
    points[#points + 1] = { x = words / square(d),
                            blocks = moved("blocks", words),
                            tiles = moved("tiles", words) }
    x = x * STEP
  end
  return points
end

-- The M from which on blocks move no more.
local function crossing(d, moved)
  local step = d * d // 256
  local words = 3 * d * d
  while moved("blocks", words) <= moved("tiles", words) do
    words = words - step
  end
  return words + step
end

-- The same without whole rows and columns.
local function smooth_crossing(d)
  local low, high = d * d, 3 * d * d
  while high - low > 1e-6 * low do
    local words = (low + high) / 2
    local m = words - d - 2
    local blocks = ((2 * d + 2) * (4 * d + 2) + 2 * d * (3 * d + 4)) / m
    local tiles = 6 + 2 * (d + 1) * d / (m - 2) + 3 * d * d / m
    if blocks > tiles then low = words else high = words end
  end
  return high
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
  for _, x in ipairs { 0.25, 0.5, 1, 1.5, 2, 4, 8 } do
    line({ { across(panel, x), TOP }, { across(panel, x), TOP + H } },
         'stroke="#eee"')
    label(across(panel, x), TOP + H + 16, "middle", "%g", x)
  end
  label((x0 + x1) / 2, TOP + H + 36, "middle", "M / (d + 4/3)²")
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

local function plot()
  local width = LEFT + #SHARES * (W + 26) + 10
  draw('<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" '
       .. 'viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">',
       width, TOP + H + 50, width, TOP + H + 50)
  draw '<rect width="100%%" height="100%%" fill="white"/>'
  legend()
  local crossings = {}
  for s, share in ipairs(SHARES) do
    frame(s - 1, share)
    bound(s - 1)
    for i, d in ipairs(SIZES) do
      local moved = counter(d, share)
      local points = sweep(d, moved)
      local color = ('stroke="%s" stroke-width="1.5"'):format(COLORS[i])
      curve(s - 1, points, "blocks", color)
      curve(s - 1, points, "tiles", color .. ' stroke-dasharray="6 3"')
      local words = crossing(d, moved)
      local x = across(s - 1, words / square(d))
      line({ { x, TOP + H }, { x, TOP + H - 9 } }, color)
      crossings[d] = crossings[d] or {}
      crossings[d][s] = words
    end
  end
  draw '</svg>'
  local file <close> = assert(io.open(path, "w"))
  file:write(table.concat(svg, "\n"), "\n")
  return crossings
end

-- Whether each crossing is the smooth one but for a step of the stairs: 4 d + 2
-- words move it by 14 / 9 of that, 14 and 14 - 5 being what blocks and their
-- difference from tiles are of d^2 / m.
local function report(crossings)
  local low, high, ok = math.huge, 0, true
  print "\nblocks move no more than tiles from this M on; over (d + 4/3)^2:"
  print "  d    all pairs      1/2            1/4            without rounding"
  for _, d in ipairs(SIZES) do
    local smooth, row = smooth_crossing(d), ("  %-4d"):format(d)
    for _, words in ipairs(crossings[d]) do
      local c = words / square(d)
      low, high = math.min(low, c), math.max(high, c)
      ok = ok and math.abs(words - smooth) < 7 * d
      row = row .. (" %-7d %.3f "):format(words, c)
    end
    ok = ok and math.abs(smooth / square(d) - 1.5) < 2e-3
    print(("%s %-8.1f %.4f"):format(row, smooth, smooth / square(d)))
  end
  print(("  M = c (d + 4/3)^2: c = %.2f within %.1f %%, 3/2 without rounding"):
        format((low + high) / 2, 100 * (high - low) / (high + low)))
  print(("  plot: %s\n"):format(path))
  return ok
end

play()
local ok = report(plot())
print(flin.stdlib.simple_gla:io { T = 16384, K = 128, V = 128 })
print(flin.stdlib.gated_deltanet:io { T = 16384, K = 128, V = 128,
                                      backward = true })
os.exit(ok and 0 or 1)
