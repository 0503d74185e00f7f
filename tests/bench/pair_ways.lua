-- Two ways back over all pairs of tokens (compiler/pair_ways.h), in a block's
-- memory of so many bytes, and with a band of the pairs alone: the bytes that
-- are predicted to be moved, and on a GPU milliseconds, and the bytes that ncu
-- counts between multiprocessors and what lies behind them. Draws the bytes.
--   flin tests/bench/pair_ways.lua [T=4096 H=16] [D=64,128,256]
--                                  [KB=8,16,32,64,128,227] [SVG=FILE] [ncu]
-- ncu: counts, too (as root; clocks are left as they are). On the CPU: what is
-- predicted.
local flin = require "flin"
io.stdout:setvbuf "line"

local T, H, svg, count, one, failed = 4096, 16, nil, false, nil, 0
local sizes, caches = { 64, 128, 256 }, { 8, 16, 32, 64, 128, 227 }

local function numbers(list)
  local found = {}
  for n in list:gmatch "%d+" do found[#found + 1] = math.tointeger(n) end
  return found
end
for _, word in ipairs(arg) do
  local name, value = word:match "^(%a+)=(.+)$"
  if name == "T" then T = math.tointeger(value)
  elseif name == "H" then H = math.tointeger(value)
  elseif name == "SVG" then svg = value
  elseif name == "D" then sizes = numbers(value)
  elseif name == "KB" then caches = numbers(value)
  elseif name == "one" then one = value
  elseif word == "ncu" then count = true end
end

local BANDS <const> = { 1, 4, 16 }                      -- T over its width
local WAYS <const> = { "blocks", "tiles" }
local program <const> = arg[-1] or "flin"
local gpu <const> = pcall(function () return flin.zeros(1):to "cuda" end)

local function variant(band)
  local W <const> = T // band
  return flin.variant { name = "attention", normalise = "softmax",
                        mask = band > 1 and function (i, j)
    if i < j or i - j >= W then return 0 end
    return 1
  end or nil }
end

local function arguments(d)
  local x = {}
  for i, n in ipairs { "q", "k", "v", "dy" } do
    x[n] = flin.randn({ 1, T, H, d }, { seed = i }):to "cuda"
  end
  return x
end

-- Milliseconds of the way back alone, from what was saved: the least of three.
local function time(v, saved, dy, cache, way)
  local function back()
    return v:backward { saved = saved, dy = dy, cache = cache << 10, way = way }
  end
  back().v:narrow(2, 1, 1):to "cpu"
  local least = math.huge
  for _ = 1, 3 do
    local from <const> = flin.clock()
    back().v:narrow(2, 1, 1):to "cpu"
    least = math.min(least, flin.clock() - from)
  end
  return least * 1e3
end

-- Bytes between multiprocessors and the last cache, of the way's kernels.
local function counted(d, band, cache, way)
  local command <const> = ("ncu --clock-control none --csv --print-units base "
    .. "--kernel-name-base function "
    .. "-k regex:'flin_(keys|queries|values|scores)' "
    .. "--metrics lts__t_sectors_srcunit_tex_op_read.sum,"
    .. "lts__t_sectors_srcunit_tex_op_write.sum %s %s T=%d H=%d "
    .. "one=%d,%d,%d,%s 2>&1"):format(program, arg[0], T, H, d, band, cache,
                                      way)
  local sectors, seen <const> = 0, {}
  for line in assert(io.popen(command)):lines() do
    seen[#seen + 1] = line
    local number <const> = line:match
      'srcunit_tex_op_%a+%.sum","[^"]*","([%d,.]+)"'
    if number then sectors = sectors + tonumber((number:gsub(",", ""))) end
  end
  if sectors == 0 then
    return nil, table.concat(seen, "\n"):sub(-400)
  end
  return sectors * 32
end

if one then
  local d, band, cache, way = one:match "(%d+),(%d+),(%d+),(%a+)"
  local v <const> = variant(math.tointeger(band))
  local x = arguments(math.tointeger(d))
  x.cache, x.way = math.tointeger(cache) << 10, way
  v:backward(x).v:narrow(2, 1, 1):to "cpu"
  os.exit(0)
end

local series <const> = {}
print(("T %d, %d heads, float32; MB moved of all heads"):format(T, H))
print("   d  band  cache  way       MB  predicted ms" ..
      (gpu and "        ms" or "") .. (count and "   MB counted" or ""))
for _, d in ipairs(sizes) do
  for _, band in ipairs(BANDS) do
    local v <const> = variant(band)
    local x <const> = gpu and arguments(d)
    local _, _, saved = (function ()
      if gpu then
        return v:forward { q = x.q, k = x.k, v = x.v, save = true }
      end
    end)()
    for _, way in ipairs(WAYS) do
      local curve <const> = { name = ("d %d, 1/%d, %s"):format(d, band, way),
                              points = {} }
      for _, cache in ipairs(caches) do
        local r <const> = v:io { T = T, K = d, V = d, H = H, backward = true,
                                 machine = "h200", cache = cache << 10 }
        local k <const> = r.plan.kernels and r.plan.kernels[way]
        if k then
          local bytes <const> = 4 * k.words * H
          local text = ("%4d  1/%-3d %4dK  %-6s %8.0f %13.2f"):format(d, band,
            cache, way .. (r.plan.kernels.way == way and "*" or ""),
            bytes / 1e6, 1e3 * k.seconds)
          if gpu then
            local ok, ms = pcall(time, v, saved, x.dy, cache, way)
            text = text .. (ok and ("%10.2f"):format(ms)
                               or "  " .. tostring(ms):match "[^\n]*")
            failed = failed + (ok and 0 or 1)
          end
          local found, why
          if count then
            found, why = counted(d, band, cache, way)
            text = text .. (found and ("%13.0f  %.2f of predicted"):format(
              found / 1e6, found / bytes) or "  " .. tostring(why))
          end
          print(text)
          curve.points[#curve.points + 1] = { cache * 256 / (d * d),
            (found or bytes) / (4 * H * T * T / 2) }
        end
      end
      series[#series + 1] = curve
    end
  end
end
if svg then
  local file <close> = assert(io.open(svg, "w"))
  file:write(flin.picture.curves(series, { log = true, x = "M / d²",
    y = "words moved a pair", title = "two ways back over all pairs" }))
end
os.exit(failed == 0)
