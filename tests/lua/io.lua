-- v:io and flin.pebble: bounds, games against their rules, plans replayed.
local flin = require "flin"
local pebble = flin.pebble

local count = require "support.count"
local expect <const> = count.expect

local function refused(what, pattern, f)
  local ok, message = pcall(f)
  expect(not ok and tostring(message):find(pattern, 1, true),
         "%s: wanted an error with '%s', got %s", what, pattern, message)
end

-- ---- the rules ----

do                                      -- (a + b) * a in three words
  local g = pebble.game(3)
  local a, b = g:input(2), g:input(3)
  refused("compute from slow memory", "operand 0 is not in fast memory",
          function () g:compute(5, a, b) end)
  g:load(a) g:load(b)
  local sum = g:compute(5, a, b)
  refused("room", "3 red words are on the board and 1 more", function ()
    g:compute(10, sum, a)
  end)
  g:drop(b)
  local y = g:compute(10, sum, a)
  refused("load before store", "which slow memory does not hold",
          function () g:drop(sum) g:load(sum) end)
  g:load(b)
  refused("drop twice", "which fast memory does not hold",
          function () g:drop(sum) end)
  g:drop(y)
  refused("store of what is gone", "which fast memory does not hold",
          function () g:store(y) end)
  g:again(sum, a, b)
  g:drop(b)
  g:again(y, sum, a)
  g:store(y)
  local c = g:count()
  expect(c.loads == 3 and c.stores == 1 and c.io == 4 and c.peak == 3
         and c.now == 3, "moves are counted")
  expect(g:is_blue(y) and g:is_red(y) and not g:is_blue(sum)
         and g:value(y) == 10, "what lies where")
  refused("no such value", "no value 9", function () g:load(9) end)
end

-- ---- attention: games, and counts without them ----

-- Played and counted alike: one pass and two, square tiles and columns.
for _, way in ipairs { "blocks", "tiles" } do
  for _, size in ipairs { { 1, 1, 13 }, { 7, 3, 40 }, { 16, 4, 34 },
                          { 20, 8, 90 }, { 32, 8, 1000 }, { 24, 16, 300 },
                          { 17, 5, 30 }, { 24, 2, 16 }, { 9, 3, 150 } } do
    for _, window in ipairs { 1, 2, 4, size[1] } do
      local a = { n = size[1], d = size[2], words = size[3], way = way,
                  window = math.min(window, size[1]) }
      local counted = pebble.attention(a)
      a.play = true
      local game = pebble.attention(a)
      expect(game.error < 1e-12 and game.peak <= a.words
             and game.loads == counted.loads and game.stores == counted.stores,
             "%s, n %d d %d M %d window %d: error %g, peak %d, io %d and %d",
             way, a.n, a.d, a.words, a.window, game.error, game.peak, game.io,
             counted.io)
    end
  end
end
refused("too little memory", "wants 44 words of fast memory at least",
        function () pebble.attention { n = 8, d = 8, words = 43 } end)

-- The leading terms, and both ways' counts without whole rows and columns.
do
  local n, d = 8192, 64
  local function ratio(way, M, words)
    local a = pebble.attention { n = n, d = d, words = M, way = way }
    return a.io / (n * n) / words
  end
  local function near_one(what, x)      -- a side of 15 words, not of 16
    expect(x > 0.97 and x < 1.07, "%s: %.3f of what it should be", what, x)
  end
  local m = 4 * d * d - d - 2
  near_one("blocks", ratio("blocks", 4 * d * d,
           ((2 * d + 2) * (4 * d + 2) + 2 * d * (3 * d + 4)) / m))
  near_one("tiles", ratio("tiles", 4 * d * d,
           6 + (2 * (d + 1) * d + 3 * d * d) / m))
  near_one("small tiles", ratio("tiles", d * d // 16,
           10 * d / (d * d / 16) ^ 0.5 + 3))
end

-- They cross at M = 3/2 (d + 4/3)^2, and whole columns later.
for _, d in ipairs { 16, 32, 64, 128 } do
  for _, share in ipairs { 1, 8 } do
    local function io(way, c)
      return pebble.attention { n = 64 * d, d = d, way = way,
                                words = math.floor(c * (d + 4 / 3) ^ 2),
                                window = 64 * d // share }.io
    end
    expect(io("blocks", 1.4) > io("tiles", 1.4)
           and io("blocks", 1.66) < io("tiles", 1.66),
           "crossing at d = %d, window n / %d", d, share)
  end
end

-- ---- bounds ----

local gla = flin.stdlib.simple_gla
local function near(what, x, y)
  expect(math.abs(x / y - 1) < 1e-12, "%s: %.17g, not %.17g", what, x, y)
end

do
  local n, d = 4096, 64
  local function io(words, options)
    options = options or {}
    options.T, options.K, options.V, options.cache = n, d, d, 4 * words
    options.machine = "cpu"
    return gla:io(options)
  end
  near("forward, large", io(8192).quadratic.lower, n * n * d * d / 8192)
  near("forward, small", io(1024).quadratic.lower, n * n * d / 32)
  near("backward, large", io(8192, { backward = true }).quadratic.lower,
       (n * n * d * d + n * d ^ 3) / 8192)
  near("backward, small", io(1024, { backward = true }).quadratic.lower,
       (n * n * d + n * d * d) / 32)
  near("never below n d", io(2 ^ 24).quadratic.lower, n * d)
  near("sparse as dense", io(1024).quadratic.sparse, n * n * d / 32)
  near("sparse scores", io(1024, { Z_QK = n * n / 16 }).quadratic.sparse,
       n * n * d / 32 / 4)
  near("sparse inputs", io(8192, { Z_input = n * d / 2 }).quadratic.sparse,
       n * n * d * d / 8192 / 4)

  -- q, k, v, g in, y out, the state at both ends
  local least = n * (4 * d + 1) + 2 * d * d
  local large, small = io(8192), io(1500)
  near("compulsory", large.forward.compulsory, least)
  expect(large.forward.walk == "resident"
         and large.forward.best == large.forward.compulsory, "resident")
  expect(small.forward.walk == "split" and small.forward.axis == "v"
         and small.forward.blocks == 4, "split in %s", small.forward.blocks)
  near("split", small.forward.best, least + 3 * n * (2 * d + 1))
  expect(io(300).forward.walk == "none" and not io(64).forward.best,
         "nothing known")
  near("training", io(2 ^ 14, { backward = true }).training.compulsory,
       least + n * (7 * d + 2) + 2 * d * d - 2 ^ 14)
  -- the delta rule mixes keys, not values; a norm of y mixes values, too
  expect(flin.stdlib.deltanet:io { T = 256, K = 64, V = 64, cache = 8192 }
         .forward.axis == "v", "the delta rule is cut along v")
  local mixed = flin.variant {
    name = "mixed", input = { q = "t k", k = "t k", v = "t v" },
    state = { S = "k v" },
    step = function (x, s)
      local S = s.S + flin.outer(x.k, x.v)
      return { S = S }, flin.l2norm(flin.dot(x.q, S))
    end,
  }
  local spilled = mixed:io { T = n, K = d, V = d, cache = 4 * 1536 }.forward
  expect(spilled.walk == "spill" and spilled.chunk == 3, "spill")
  near("spilled", spilled.best, spilled.compulsory
       + 2 * d * d * math.ceil(n / 3))
  expect(tostring(large):find("proved", 1, true), "prints")
end
-- Over all pairs the plan is the schedule that moves fewer words.
do
  local softmax = flin.variant { normalise = "softmax" }
  local function io(words)
    return softmax:io { T = 1024, K = 64, V = 64, cache = 4 * words,
                        backward = true }
  end
  for _, words in ipairs { 600, 2048, 4096, 6144, 7168, 16384, 99072 } do
    local r = io(words)
    local q, way = r.quadratic, r.plan.way
    expect(r.plan.words == math.min(q.blocks, q.tiles)
           and r.plan.words == q[way], "%d words: %s", words, way)
    expect((way == "tiles") == (words <= 6144), "%d words: %s", words, way)
  end
  expect(io(20).plan.way == "tiles" and not io(20).quadratic.blocks,
         "blocks in 20 words")
  expect(softmax:io { T = 1024, K = 64, V = 64 }.plan_note, "forward")
end
-- Kernels of both ways: what they are predicted to move, beside loops that go
-- as they do, pair by pair; they fit; and tiles are taken in little memory.
do
  local T <const>, K <const>, V <const> = 60, 20, 12
  local masks <const> = {
    all = function (i, j) return i >= j end,
    band = function (i, j) return i >= j and i - j < 17 end,
    sinks = function (i, j) return i >= j and (j < 3 or i - j < 9) end,
  }
  local written <const> = {
    band = function (i, j)
      if i < j or i - j >= 17 then return 0 end
      return 1
    end,
    sinks = function (i, j)
      if i < j then return 0 end
      if j < 3 or i - j < 9 then return 1 end
      return 0
    end,
  }
  -- Tokens that stream past all parts of own ones; and own ones, once a step.
  local function streamed(has, of_keys, own, step)
    local sum, again = 0, 0
    for from = 0, T - 1, own do
      local to = math.min(from + own, T) - 1
      local any = {}
      for a = from, to do
        for b = 0, T - 1 do
          if of_keys and has(b, a) or not of_keys and has(a, b) then
            any[b] = true
          end
        end
      end
      local first, last = T, -1
      for b in pairs(any) do
        first, last = math.min(first, b), math.max(last, b)
      end
      for s = first, last, step do
        local met = false
        for b = s, math.min(s + step - 1, last) do met = met or any[b] end
        if met then
          sum = sum + math.min(s + step, last + 1) - s
          again = again + to - from + 1
        end
      end
    end
    return sum, again
  end
  for name, has in pairs(masks) do
    local pairs_of = streamed(has, true, 1, 1)
    local v = flin.variant { normalise = "softmax", mask = written[name] }
    for _, cache in ipairs { 800, 2000, 9000 } do
      local k = v:io { T = T, K = K, V = V, cache = cache, machine = "h200",
                       backward = true, H = 1000 }.plan.kernels
      for way, kernels in pairs { blocks = k.blocks, tiles = k.tiles } do
        local want = {}
        for n in pairs(kernels) do
          local s = kernels[n]
          if type(s) == "table" then
            local seen, again = streamed(has, n ~= "dq", s.own, s.step)
            local columns = n == "dv" and V or K
            local slices = math.ceil(columns / s.wide)
            if way == "blocks" then
              want[n] = n == "dk" and 2 * T * (K + V) + seen * (K + V + 2)
                        or T * (2 * K + V + 2) + seen * (K + V)
            elseif n == "scores" then
              local own = s.wide >= K and T or again
              want[n] = (own + seen) * (K + V) + 2 * seen + 3 * pairs_of
            else
              want[n] = seen * (columns + (n == "dv" and slices or 0))
                        + slices * pairs_of + T * columns
            end
            expect(math.abs(s.words / want[n] - 1) < 1e-9 and s.room <= cache,
                   "%s, %s in %d bytes: %s moves %g words, not %g, in %d bytes",
                   name, way, cache, n, s.words, want[n], s.room)
          end
        end
      end
    end
  end
  local softmax <const> = flin.variant { normalise = "softmax" }
  local function taken(d, cache)
    return softmax:io { T = 4096, K = d, V = d, cache = cache, machine = "h200",
                        backward = true }.plan.kernels.way
  end
  for _, d in ipairs { 64, 128 } do     -- a step of memory round 3/2 d^2 words
    expect(taken(d, 4 * d * d) == "tiles" and taken(d, 12 * d * d) == "blocks",
           "kernels for d = %d", d)
  end
  expect(taken(256, 227 << 10) == "tiles", "d = 256")
  -- What was measured on an H200, ms of both ways: all pairs, a quarter of them
  local quarter <const> = flin.variant { normalise = "softmax",
    mask = function (i, j)
      if i < j or i - j >= 1024 then return 0 end
      return 1
    end }
  for v, measured in pairs {
    [softmax] = { [16] = { 114, 36.3 }, [32] = { 41.8, 26.4 },
                  [64] = { 30.2, 20.8 }, [227] = { 25.8, 36.1 } },
    [quarter] = { [16] = { 49.7, 15.7 }, [32] = { 18.1, 10.7 },
                  [64] = { 13.4, 8.16 }, [227] = { 11.7, 12.5 } } } do
    for cache, ms in pairs(measured) do
      local k = v:io { T = 4096, K = 128, V = 128, H = 16, machine = "h200",
                       cache = cache << 10, backward = true }.plan.kernels
      for n, way in ipairs { "blocks", "tiles" } do
        local part = 1e3 * k[way].seconds / ms[n]
        expect(part > 0.6 and part < 1.15, "%s in %d KB: %.2f of its time", way,
               cache, part)
      end
      expect((k.way == "tiles") == (ms[2] < ms[1]), "%d KB: %s", cache, k.way)
    end
  end
  -- v:plan has the same kernels
  local function plan(options)
    options.T, options.K, options.V, options.H = 4096, 128, 128, 16
    options.machine, options.backward = options.machine or "h200", true
    return softmax:plan(options)
  end
  local fast, little = plan {}, plan { dtype = "float32", cache = 1 << 15 }
  expect(#fast.kernels == 3 and not fast.way
         and fast.kernels[2].form == "wgmma", "by tensor cores: %s", fast.text)
  expect(#little.kernels == 5 and little.way == "tiles", "tiles: %s",
         little.text)
  expect(#plan { machine = "a100", way = "blocks" }.kernels == 3, "a100")
  local io = softmax:io { T = 4096, K = 128, V = 128, cache = 1 << 15,
                          machine = "h200", backward = true }
  local bytes = 0
  for i = 2, 5 do bytes = bytes + little.kernels[i].bytes end
  expect(math.abs(bytes * 4096 / 4 / io.plan.kernels.tiles.words - 1) < 1e-9,
         "v:plan's bytes beside v:io's words")
  refused("plan", "too little", function ()
    plan { cache = 1000, way = "blocks" }
  end)
end
refused("cache", "at least 64 bytes", function () gla:io { cache = 8 } end)
refused("machine", "no machine 'abacus'", function ()
  gla:io { machine = "abacus" }
end)

-- ---- plans ----

-- Replayed tile by tile, a plan moves what was predicted: of every variant of
-- the standard library, forward and for training. A kernel that takes chunks
-- in any order reads constants of the head for each: that is not predicted.
for _, name in ipairs(flin.stdlib_names) do
  local v, constants = flin.stdlib[name], 0
  for _, input in ipairs(v.inputs) do
    local timed = (" " .. input.axes .. " "):find(" t ", 1, true)
    constants = constants + (timed and 0 or 64)
  end
  for _, backward in ipairs { false, true } do
    local r = v:io { T = 200, K = 16, V = 24, chunk = 16, machine = "cpu",
                     backward = backward }
    expect(r.plan, "%s: no plan: %s", name, r.plan_note)
    for _, k in ipairs(r.plan and r.plan.kernels or {}) do
      local words = k.loads + k.stores
      local off = 4 * words - k.predicted
      expect(off == 0 or (k.name:find "^token" and off > 0
                          and off <= 4 * constants),
             "%s, %s: %d bytes replayed, %d predicted", name, k.name,
             4 * words, k.predicted)
    end
    local least = backward and r.training or r.forward
    expect(not r.plan or r.plan.words >= least.compulsory,
           "%s moves less than is possible", name)
  end
end

-- ---- the example: its games agree, the crossings are one, a plot is drawn --

do
  local plot = os.tmpname()
  local pipe = io.popen(("'%s' examples/io_bounds.lua '%s' 2>&1")
                        :format(arg[-1], plot))
  local text = pipe:read "a"
  expect(pipe:close(), "io_bounds.lua: %s", text)
  local file = assert(io.open(plot))
  local svg = file:read "a"
  file:close()
  os.remove(plot)
  local _, curves = svg:gsub('stroke%-width="1.5"', "")
  expect(svg:find "^<svg " and svg:find "</svg>\n$" and curves >= 30
         and not svg:find "nan" and not svg:find "inf", "the plot is whole")
end

count.finish()
