-- How fast is what nobody tuned for? Variants of tests/variants, forward and
-- both ways on a GPU: by how much each takes longer than its operations at the
-- GPU's rate, or its arguments at that of a copy, whatever is more; beside the
-- variant of the standard library that has about as many operations a byte.
-- Those over 1.25 are marked.
--   flin tests/bench/variants.lua [T=2048 H=32 seconds=0.1] [NAME ...]
-- NAMEs: which to measure, of either; none: all.
local flin = require "flin"
io.stdout:setvbuf "line"

local MOST <const> = 1.25
-- Of axes that a file names, as the papers have them; k where it is squared.
local LONG <const> = { k = 128, v = 128, d = 128, m = 64, n = 64, l = 16 }
local SQUARED <const> = 16

local option, asked = { T = 2048, H = 32, seconds = 0.1 }, nil
for _, word in ipairs(arg) do
  local name, number = word:match "^(%a+)=([%d.]+)$"
  if name then
    option[name] = tonumber(number)
  else
    asked = asked or {}
    asked[word] = true
  end
end

local HELD_OUT <const> = { "based", "cyfa", "hawk", "hgrn", "kalman", "linoss",
  "log_linear", "longhorn", "mesa_net", "path", "rwkv4", "s4d", "s6", "slstm",
  "ttt" }

local function sizes_of(v, file)
  local sizes = {}
  for axis in pairs(v.axes) do
    local named = file and file.size[axis]
    sizes[axis:upper()] = (named or axis == "k" or axis == "v") and LONG[axis]
                          or named
  end
  if file and file.size.l then sizes.K = SQUARED end
  return sizes
end

-- Rows of v:bench, of which each has its time and its operations.
local function measure(name, v, file)
  local options = sizes_of(v, file)
  options.T, options.H, options.seconds = option.T // 1, option.H // 1,
                                          option.seconds
  options.dtype, options.backend = "bfloat16", "cuda"
  local ok, b = pcall(v.bench, v, options)
  if not ok then
    print(("%-16s %s"):format(name, tostring(b):match "[^\n]*"))
    return
  end
  local found = { name = name, note = b.note }
  for _, row in ipairs(b.rows) do
    local way = row.name:find "^forward %+" and "both"
             or row.name:find "^forward" and "forward"
    if way and row.flops and row.flops > 0 then
      found[way] = { seconds = row.seconds, flops = row.flops,
                     dense = row.flops / row.bytes,
                     over = row.seconds / math.max(row.flops / b.peak,
                                                   row.bytes / b.copy) }
      print(("%-16s %-8s %9.4f ms %9.2f GFLOP %7.2f TFLOP/s %6.1f FLOP a byte"
             .. " %6.2f of the floor"):format(name, way, row.seconds * 1e3,
            row.flops / 1e9, row.flops / row.seconds / 1e12, found[way].dense,
            found[way].over))
    end
  end
  return found
end

local function wanted(name)
  return not asked or asked[name]
end

local known, held = {}, {}
for name, v in pairs(flin.stdlib) do
  if wanted(name) then
    known[#known + 1] = measure(name, v)
  end
end
for _, name in ipairs(HELD_OUT) do
  if wanted(name) then
    local file = dofile("tests/variants/" .. name .. ".lua")
    held[#held + 1] = measure(name, file.variant(flin), file)
  end
end

local function nearest(to, way)
  local best, least
  for _, one in ipairs(known) do
    local off = one[way] and not one.note
                and math.abs(math.log(one[way].dense / to.dense))
    if off and (not best or off < least) then best, least = one, off end
  end
  return best
end

local slow, compared = 0, 0
for _, one in ipairs(held) do
  for _, way in ipairs { "forward", "both" } do
    local near = one[way] and nearest(one[way], way)
    if near then
      local ratio = one[way].over / near[way].over
      compared, slow = compared + 1, slow + (ratio > MOST and 1 or 0)
      print(("%-12s %-8s %6.2f of %s's%s%s"):format(one.name, way, ratio,
            near.name, ratio > MOST and ": more than 1.25" or "",
            one.note and "; token by token: " .. one.note or ""))
    end
  end
end
print(("%d of %d take at most 1.25 times as long"):format(compared - slow,
                                                          compared))
