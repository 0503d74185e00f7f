-- Which road each composition of decay, features and transition takes on
-- Hopper, bf16, K = V = 128: how many of those that flin.attention accepts run
-- forward, and forward and backward, on its tensor cores alone. Of 9 * 9 * 8
-- 463 are accepted: the trapezoidal rule takes none of the 4 transitions that
-- look at an error (72 less), the stabilised decay a sum of one key alone,
-- without taylor (64), and taylor such a sum alone (48), not gated per key (1).
-- All of those do; the 7 with taylor, whose state is of K^2 V, over pairs.
--   flin roads.lua          a sample, as a test
--   flin roads.lua all      all of them; those that do not, and why
local flin = require "flin"
local compositions = require "support.compositions"

-- What v:plan says of each kernel that would be launched, and what keeps it off
-- tensor cores. nil: no kernels of such chunks, and why.
local function roads_of(v, chunk, size)
  local ok, plan = pcall(v.plan, v, { K = size or 128, V = size or 128,
                                      backward = true, machine = "h200",
                                      chunk = chunk })
  if not ok then return nil, tostring(plan):match "[^\n]*" end
  if plan.note or not plan.kernels[1].form then
    return nil, "no kernels of a chunk"
  end
  return plan.kernels
end

local every = arg[1] == "all" and 1 or 23
local accepted, forward, both, reasons = 0, 0, 0, {}

local function count(title, v, chunk, size)
  local roads, why = roads_of(v, chunk, size)
  local off = roads and 0 or 1
  accepted = accepted + 1
  for i, road in ipairs(roads or {}) do
    if road.why then
      off = off + 1
      why = why or road.name .. ": " .. road.why
    elseif i == 1 then
      forward = forward + 1
    end
  end
  both = both + (off == 0 and 1 or 0)
  if why then
    local kind = why:gsub("%%%d+", "%%"):gsub("%d+ bytes", "bytes")
    reasons[kind] = (reasons[kind] or 0) + 1
    if every == 1 then print(title .. ": " .. why) end
  end
end

local at, sums = 0, 0
compositions(function (n)
  at = n
  return n % every == 0 or n % 72 == 65   -- taylor as a plain sum
end, function (title, v)
  sums = sums + (at % 72 == 65 and 1 or 0)
  count(title, v, 64)
end)

print(("%d compositions: %d forward, %d both ways on tensor cores"):format(
      accepted, forward, both))
local kinds = {}
for kind in pairs(reasons) do kinds[#kinds + 1] = kind end
table.sort(kinds, function (a, b) return reasons[a] > reasons[b] end)
for i = 1, every == 1 and #kinds or 0 do
  print(("%5d  %s"):format(reasons[kinds[i]], kinds[i]))
end
local failed = 0
if forward < accepted or both < accepted then
  print("FAIL some compositions are not on tensor cores alone")
  failed = 1
end
if accepted < (every == 1 and 463 or 19 + 7) or sums ~= 7 then
  print("FAIL fewer compositions are accepted than there were", accepted, sums)
  failed = 1
end

-- Of more ranks, or steps: rows of a chunk, which has fewer tokens; of three
-- there are four rows, of which one is empty.
local T <const> = flin.transition
accepted, both = 0, 0
for title, t in pairs {
  ["sum, 3 ranks"] = T.one_step_gd { mimo_rank = 3 },
  ["sum, 7 ranks"] = T.one_step_gd { mimo_rank = 7 },
  ["sum, 8 ranks"] = T.one_step_gd { mimo_rank = 8 },
  ["delta, 3 ranks"] = T.delta_rule { mimo_rank = 3 },
  ["delta, 6 ranks"] = T.delta_rule { mimo_rank = 6 },
  ["product of 3"] = T.delta_product { steps = 3 },
  ["delta, 4 ranks"] = T.delta_rule { mimo_rank = 4 },
  ["product of 4"] = T.delta_product { steps = 4 },
  ["product of 7"] = T.delta_product { steps = 7 },
  ["product of 12"] = T.delta_product { steps = 12 },
  ["product of 32"] = T.delta_product { steps = 32 },
} do
  count(title, flin.attention { decay = flin.decay.gated {}, transition = t })
end
print(("%d of more ranks: %d both ways on tensor cores"):format(accepted,
                                                                both))
if both < accepted then
  print("FAIL more ranks are not on tensor cores alone")
  failed = 1
end

-- Of keys and values of 512: blocks share a head, each with columns of its own.
accepted, both = 0, 0
for _, name in ipairs { "linear", "simple_gla", "deltanet" } do
  count(name .. " of 512", flin.stdlib[name], nil, 512)
end
print(("%d of 512: %d both ways on tensor cores"):format(accepted, both))
if both < accepted then
  print("FAIL K = V = 512 is not on tensor cores alone")
  failed = 1
end

-- Forward alone v:plan shows the kernels that a call compiles, though no chunk
-- fits in one.
for _, name in ipairs { "gla", "titans" } do
  local v, shown, made = flin.stdlib[name], {}, {}
  for i, kernel in ipairs(v:plan { K = 512, V = 512,
                                   machine = "h200" }.kernels) do
    shown[i] = kernel.name
  end
  local text = v:source("cuda", { K = 512, V = 512, arch = "sm_90a",
                                  dtype = "bfloat16" })
  for kernel in text:gmatch "__global__[^%(]*%([^%)]*%) (k%d+_%a+)%(" do
    made[#made + 1] = kernel
  end
  shown, made = table.concat(shown, " "), table.concat(made, " ")
  if shown ~= made then
    print("FAIL " .. name .. " of 512 is shown as", shown, "and is", made)
    failed = 1
  end
end

-- What is too large for a kernel is cut before chunks are, of whose 64 rows
-- wgmma's products are.
for name, size in pairs { gated_deltanet = 512, kda = 256 } do
  local text = tostring(flin.stdlib[name]:plan {
    K = size, V = size, backward = true, machine = "h200" })
  if text:find "\n  mma.sync" then
    print("FAIL " .. name .. " of " .. size .. " is not on wgmma")
    failed = 1
  end
end

-- Structures that no composition has.
local exp <const>, dot <const>, outer <const> = flin.exp, flin.dot, flin.outer
local function gated(name, step, more)
  return flin.variant {
    name  = name, state = more or { S = "k v" },
    input = { q = "t k", k = "t k", v = "t v", g = "t : log_decay" },
    step  = function (x, s) return step(x, s, exp(x.g)) end,
  }
end

accepted, both = 0, 0
for title, v in pairs {
  ["a norm over v"] = gated("norm", function (x, s, a)
    local S = a * s.S + outer(x.k, x.v)
    local y = dot(x.q, S)
    return { S = S }, y * flin.rsqrt(flin.mean(y * y, "v") + 1e-6)
  end),
  ["two matrices"] = gated("two", function (x, s, a)
    local S, R = a * s.S + outer(x.k, x.v), s.R / 2 + outer(x.k, x.v)
    return { S = S, R = R }, dot(x.q, S) - dot(x.k, R)
  end, { S = "k v", R = "k v" }),
  ["one that another reads"] = gated("nested", function (x, s, a)
    local S = a * s.S + outer(x.k, x.v)
    local R = s.R / 2 + outer(x.k, dot(x.q, S))
    return { S = S, R = R }, dot(x.q, R)
  end, { S = "k v", R = "k v" }),
  ["a heavy ball"] = gated("ball", function (x, s, a)
    local M = a * s.M + outer(x.k, x.v - dot(x.k, s.S))
    return { M = M, S = s.S + M }, dot(x.q, s.S + M)
  end, { M = "k v", S = "k v" }),
  ["three taps"] = gated("taps", function (x, s, a)
    local k, v = flin.prev(x.k), flin.prev(x.v)
    local S = a * s.S + outer(x.k, x.v) + outer(k, v) / 2
            + outer(flin.prev(k), flin.prev(v)) / 4
    return { S = S }, dot(x.q, S)
  end),
  ["norms of the token before"] = flin.attention {
    decay = flin.decay.gated { discretization = "trapezoidal" },
    features = flin.feature_map.l2norm {}, transition = T.one_step_gd {},
  },
  ["a decay for each value"] = flin.variant {
    name = "values", mask = function (i, j, p)
      if i < j then return 0 end
      return exp(p.g_cumsum[i] - p.g_cumsum[j])
    end, input = { g = "t v : log_decay" },
  },
  ["a sum of masks"] = flin.variant {
    name = "sums", mask = function (i, j, p)
      if i < j then return 0 end
      return exp(p.g_cumsum[i] - p.g_cumsum[j])
             + p.b[j] * exp(p.h_cumsum[i] - p.h_cumsum[j])
    end,
  },
  ["a band"] = flin.variant {
    name = "band", mask = function (i, j, p)
      if i < j then return 0 end
      if i - j < 4 then return p.b[j] end
      return exp(p.g_cumsum[i] - p.g_cumsum[j])
    end,
  },
} do
  local had = both
  count(title, v, 64)
  if both == had then
    print("FAIL " .. title .. " is not on tensor cores alone")
    failed = 1
  end
end
print(("%d other structures: %d both ways on tensor cores"):format(accepted,
                                                                   both))
print(("%d passed, %d failed"):format(1 - failed, failed))
os.exit(failed == 0)
