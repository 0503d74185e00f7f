-- How fast is what nobody tuned for? Variants of tests/variants, forward and
-- both ways on a GPU: time a FLOP, and by how much each takes longer than its
-- operations at the GPU's rate, or its arguments at that of a copy, whatever is
-- more; beside the variant of the standard library that has about as many
-- operations a byte. Those over 1.25 are marked.
--   flin tests/bench/variants.lua [T=2048 H=32 seconds=0.05] [NAME ...]
-- NAMEs: which to measure, of either; none: all. part=1/16: compiles each 16th
-- into FLIN_CACHE and measures nothing, for 16 processes side by side.
-- limit=80: what is not begun after so many seconds is left out, and said.
local flin = require "flin"
io.stdout:setvbuf "line"

local MOST <const> = 1.25
-- Of axes that a file names, as the papers have them; keys where Based squares
-- them.
local LONG <const> = { k = 128, v = 128, d = 128, m = 64, n = 64, l = 128,
                       p = 64 }
-- Of entries that decay each by itself there are as many as Mamba has.
local OWN <const> = { longhorn = { K = 16 }, based = { K = 16, L = 16 },
                      log_linear = { L = 6 },
                      cyfa = { M = 128, P = 64, R = 128 } }

local option, asked = { T = 2048, H = 32, seconds = 0.05, limit = 1e9 }, nil
local part, parts
for _, word in ipairs(arg) do
  local name, number = word:match "^(%a+)=([%d.]+)$"
  local one, all = word:match "^part=(%d+)/(%d+)$"
  if one then
    part, parts = tonumber(one), tonumber(all)
  elseif name then
    option[name] = tonumber(number)
  else
    asked = asked or {}
    asked[word] = true
  end
end
local began <const> = flin.clock()

local HELD_OUT <const> = { "based", "hawk", "hgrn", "kalman", "linoss",
  "log_linear", "longhorn", "mesa_net", "path", "rwkv4", "s4d", "s6", "slstm",
  "ttt" }

local function sizes_of(v, file)
  local sizes = {}
  for axis, own in pairs(v.axes) do
    local named = not file or file.size[axis]
    if not own then
      sizes[axis:upper()] = (named or axis == "k" or axis == "v")
                            and LONG[axis] or math.tointeger(named)
    end
  end
  for axis, n in pairs(OWN[v.name] or {}) do
    sizes[axis] = n
  end
  return sizes
end

-- The operations of a call over pairs of tokens, whose kernels nobody hears.
local function planned(v, options, way)
  local asked = { machine = "h200", backward = way == "both", B = 1,
                  T = options.T, H = options.H }
  for axis in pairs(v.axes) do
    asked[axis:upper()] = options[axis:upper()]
  end
  local ok, plan = pcall(v.plan, v, asked)
  local flops = 0
  for _, kernel in ipairs(ok and plan.mode == "quadratic" and plan.kernels
                          or {}) do
    flops = flops + kernel.flops * options.T * options.H
  end
  return flops
end

-- Its time and its operations forward, and both ways.
local function measure(name, v, file)
  local options = sizes_of(v, file)
  options.T, options.H = option.T // 1, option.H // 1
  options.seconds = part and 0 or option.seconds
  options.dtype, options.backend = "bfloat16", "cuda"
  options.states = false                -- as in training
  local from = flin.clock()
  local ok, b = pcall(v.bench, v, options)
  if not ok then
    print(("%-16s %s"):format(name, tostring(b):match "[^\n]*"))
    return
  end
  if part then
    print(("%-16s compiled and run in %.1f s"):format(name,
                                                      flin.clock() - from))
    return
  end
  local found = { name = name, note = b.note, variant = v, file = file }
  for _, row in ipairs(b.rows) do
    local way = row.name:find "^forward %+" and "both"
             or row.name:find "^forward" and "forward"
    local flops = way and row.flops == 0 and planned(v, options, way)
                  or row.flops
    if way and flops and flops > 0 then
      found[way] = { seconds = row.seconds, flops = flops,
                     dense = flops / row.bytes,
                     over = row.seconds / math.max(flops / b.peak,
                                                   row.bytes / b.copy) }
      print(("%-16s %-8s %9.4f ms %9.2f GFLOP %8.4f ps a FLOP %6.1f FLOP a byte"
             .. " %6.2f of the floor"):format(name, way, row.seconds * 1e3,
            flops / 1e9, row.seconds / flops * 1e12, found[way].dense,
            found[way].over))
    end
  end
  return found
end

-- Which are wanted, held out ones first: { NAME, VARIANT, FILE }.
local list, left = {}, {}
for _, name in ipairs(HELD_OUT) do
  if not asked or asked[name] then
    local file = dofile("tests/variants/" .. name .. ".lua")
    list[#list + 1] = { name, file.variant(flin), file }
  end
end
local library = {}
for name in pairs(flin.stdlib) do
  library[#library + 1] = (not asked or asked[name]) and name or nil
end
table.sort(library)
for _, name in ipairs(library) do
  list[#list + 1] = { name, flin.stdlib[name] }
end

local known, held = {}, {}
for at, one in ipairs(list) do
  if part and at % parts ~= part % parts then
    -- another process's
  elseif flin.clock() - began > option.limit then
    left[#left + 1] = one[1]
  else
    local to = one[3] and held or known
    to[#to + 1] = measure(table.unpack(one))
  end
end
if #left > 0 then
  print("no time was left for " .. table.concat(left, ", "))
end
if part then return end

local function nearest(to, way)
  local best, least
  for _, one in ipairs(known) do
    local off = one[way] and not one.note
                and math.abs(math.log(one[way].dense / to.dense))
    if off and (not best or off < least) then best, least = one, off end
  end
  return best
end

-- What v:plan says keeps a kernel off tensor cores.
local function why_of(one, way)
  local asked = { machine = "h200", backward = way == "both" }
  for axis, n in pairs(sizes_of(one.variant, one.file)) do
    asked[axis] = n
  end
  local ok, plan = pcall(one.variant.plan, one.variant, asked)
  for _, kernel in ipairs(ok and plan.kernels or {}) do
    if kernel.why then return ": " .. kernel.name .. ": " .. kernel.why end
  end
  return ""
end

local slow, compared = 0, 0
for _, one in ipairs(held) do
  for _, way in ipairs { "forward", "both" } do
    local mine = one[way]
    local near = mine and nearest(mine, way)
    if near then
      local other = near[way]
      local ratio = mine.over / other.over
      compared, slow = compared + 1, slow + (ratio > MOST and 1 or 0)
      print(("%-12s %-8s %8.4f ps a FLOP, %s %8.4f: %6.2f; of floors %6.2f%s%s")
            :format(one.name, way, mine.seconds / mine.flops * 1e12, near.name,
                    other.seconds / other.flops * 1e12,
                    mine.seconds / mine.flops * other.flops / other.seconds,
                    ratio, ratio > MOST
                      and ": more than 1.25" .. why_of(one, way) or "",
                    one.note and "; token by token: " .. one.note:match "[^\n]*"
                      or ""))
    end
  end
end
print(("%d of %d take at most 1.25 times as long"):format(compared - slow,
                                                          compared))
