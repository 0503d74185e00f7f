-- Masks of both directions: two scans are what the function says of all pairs,
-- forward and backward, whatever they say of positions, sums and tokens before.
local flin = require "flin"
local exp, abs = flin.exp, flin.abs

local count = require "support.count"
local masks = require "support.masks"
local check <const>, same_as_sum <const> = count.check, masks.same_as_sum

local function both(name, mask, input, limit)
  same_as_sum(name, mask, { causal = false, input = input }, limit)
end

both("all alike", function () return 1 end)
both("a decay each way", function (i, j, p)
  if i < j then return p.b[j] * exp(p.h_cumsum[j] - p.h_cumsum[i]) end
  return p.a[i] * exp(p.g_cumsum[i] - p.g_cumsum[j])
end)
both("one decay", function (i, j, p)
  local d = p.g_cumsum[i] - p.g_cumsum[j]
  return exp(i < j and -d or d)
end)
both("distances", function (i, j) return exp(-0.1 * abs(i - j)) end)
both("all but itself", function (i, j, p)
  if i < j then return exp(p.s * (j - i)) end
  if i == j then return 0 end
  return exp(p.s * (i - j))
end, { s = ": log_decay" })
both("behind alone", function (i, j, p)
  if i >= j then return 0 end
  return exp(p.g_cumsum[j] - p.g_cumsum[i])
end)
both("a band on both sides", function (i, j, p)
  if abs(i - j) > 3 then return 0 end
  return p.w[j] / (abs(i - j) + 1)
end)
both("a band beside a decay", function (i, j, p)
  if i >= j then return exp(p.g_cumsum[i] - p.g_cumsum[j]) end
  if j - i > 20 then return 0 end
  return p.w[j] * exp(p.g_cumsum[j] - p.g_cumsum[i])
end)
both("a late start behind", function (i, j, p)
  if i >= j then return 1 end
  if j - i < 4 then return 0 end
  return p.w[i] * exp(p.g_cumsum[j] - p.g_cumsum[i])
end)
both("rotations", function (i, j) return flin.cos(0.3 * (i - j)) end)
both("first tokens for those behind them", function (i, j)
  if i < j then return exp(0.2 * (i - j)) end
  return j < 4 and 1 or 0
end)
both("first tokens, seen from before", function (i, j)
  return j < 4 and 1 or exp(-0.2 * abs(i - j))
end)
both("first tokens that see", function (i, j)
  if i > 2 and i < j then return 0 end
  return exp(-0.2 * abs(i - j))
end)
both("a position", function (i) return exp(-0.01 * i) end)
both("a sum", function (i, j, p) return flin.sigmoid(p.g_cumsum[i]) end)
both("a token before", function (i, j, p) return p.x[j - 1] end)
both("tokens before both", function (i, j, p)
  if abs(i - j) > 9 then return 0 end
  return p.x[i - 2] * exp(-abs(p.h_cumsum[i] - p.h_cumsum[j])) + p.x[j - 1]
end)
both("even tokens", function (i, j)
  if i % 2 > 0 then return 0 end
  return exp(-0.1 * abs(i - j))
end)
both("products of constants", function (i, j, p)
  if i >= j then return exp((p.s - 1) * (i - j)) end
  return exp(0.2 * p.s * i - 0.2 * p.s * j)
end, { s = ": unit" }, 3e-5)
both("what is above is 0", function (i, j, p)
  if i < j then return 0 end
  return exp(p.g_cumsum[i] - p.g_cumsum[j])
end)
same_as_sum("all pairs", function (i, j) return 1 / (abs(i - j) + 1) end,
            { causal = false, mode = "quadratic" })

-- ---- resets, sequences, heads, types ----

local decays = flin.variant { name = "decays", causal = false,
                              mask = function (i, j, p)
  local d = p.g_cumsum[i] - p.g_cumsum[j]
  return exp(i < j and -d or d)
end }

-- A reset parts what is before it from what is behind it, both ways; the decays
-- of others lose nothing to it.
for _, reset in ipairs { -1e9, -math.huge } do
  local x = decays:random { B = 1, H = 1, T = 60, K = 8, V = 8 }
  local g = x.g:clone()
  g[{ 1, 31, 1 }] = reset
  local function part(first, n)
    local y = {}
    for name, t in pairs(x) do y[name] = t:narrow(2, first, n) end
    y.g = y.g:clone()
    return y
  end
  local head, tail = part(1, 30), part(31, 30)
  local all = {}
  for name, t in pairs(x) do all[name] = t end
  all.g = g
  local y = decays:forward(all)
  local a = (y:narrow(2, 1, 30) - decays:forward(head)):maxabs()
  local b = (y:narrow(2, 31, 30) - decays:forward(tail)):maxabs()
  check("reset " .. reset, a <= 1e-5 and b <= 1e-5, ("%g %g"):format(a, b))
end

local softmax = flin.variant { name = "softmax", causal = false,
                               normalise = "softmax" }
for _, v in ipairs { decays, softmax } do
  local e = v:check { T = 70, B = 2, H = 1, HV = 2, K = 8, V = 8 }
  check(v.name .. ", shared heads", e.worst <= 1e-5, e.worst)
  e = v:check { T = 70, H = 2, K = 8, V = 8, cu_seqlens = { 0, 1, 1, 30, 70 } }
  check(v.name .. ", packed", e.worst <= 1e-5, e.worst)
end

-- Heads of q and k that share those of v.
do
  local x, wide = decays:random { B = 1, T = 70, H = 4, K = 8,
                                V = 8 }, {}
  x.v, x.g = x.v:narrow(3, 1, 2), x.g:narrow(3, 1, 1)
  x.dy = flin.randn({ 1, 70, 4, 8 }, { seed = 5 })
  for name, t in pairs(x) do wide[name] = t:to "float64" end
  local found = decays:backward(x)
  for name, want in pairs(decays:reference_backward(wide)) do
    if flin.is_tensor(want) then
      local e = (found[name]:to "float64" - want):maxabs() / want:maxabs()
      check("shared values: d_" .. name, e <= 1e-5, e)
    end
  end
end

-- Sequences of a packed call are those of calls of their own.
do
  local x = decays:random { B = 1, T = 50, K = 8, V = 8 }
  local ends, parts = { 0, 13, 13, 50 }, {}
  for s = 1, 3 do
    local n = ends[s + 1] - ends[s]
    local y = {}
    for name, t in pairs(x) do y[name] = t:narrow(2, ends[s] + 1, n) end
    parts[s] = n > 0 and decays:forward(y)
  end
  x.cu_seqlens = ends
  local y = decays:forward(x)
  for s, part in ipairs(parts) do
    local e = part and (y:narrow(2, ends[s] + 1, ends[s + 1] - ends[s])
                        - part):maxabs() or 0
    check("sequence " .. s .. " alone", e <= 1e-6, e)
  end
end

do
  local x = decays:random { T = 40, K = 8, V = 8 }
  local y, _, saved = decays:forward(x, { save = true })
  x.dy = y
  local a = decays:backward(x)
  x.saved = saved
  local b = decays:backward(x)
  check("saved", (a.q - b.q):maxabs() == 0, "d_q differs")
end

-- ---- what is refused ----

local function refused(name, mask, message, def)
  def = def or {}
  def.mask, def.causal = mask, false
  local ok, why = pcall(flin.variant, def)
  check(name, not ok and tostring(why):find(message, 1, true), why)
end

refused("a coupling", function (i, j) return 1 / (abs(i - j) + 1) end,
        "1/(i - j + 1) couples i and j")
refused("nothing", function () return 0 end, "zero everywhere")

do
  local ok, why = pcall(flin.variant, { mask = function () return 1 end })
  check("by default a mask is causal", not ok
        and tostring(why):find("causal = false", 1, true), why)
  ok, why = pcall(flin.variant, { causal = false, input = { x = "t k" },
                                  step = function (x) return {}, x.x end })
  check("a step has one direction", not ok
        and tostring(why):find("causal is of masks", 1, true), why)
  ok, why = pcall(decays.step, decays, decays:random { T = 1 })
  check("no step", not ok and tostring(why):find("still to come", 1, true),
        why)
  for _, method in ipairs { "plan", "io", "compile" } do
    ok, why = pcall(decays[method], decays)
    check("no " .. method, not ok and tostring(why):find(
          "a plan for each direction", 1, true), why)
  end
  for from, kind in pairs { first = "forward", last = "reverse" } do
    local plan = decays:plan { from = from, machine = "h200", K = 128,
                               V = 128 }
    check("a plan from the " .. from, plan.kernels[1].kind == kind, plan)
    local text = decays:source("cuda", { from = from, K = 64, V = 64 })
    check("source from the " .. from, text:find("k0_" .. kind, 1, true), text)
    local io = decays:io { from = from, K = 16, V = 16 }
    check("io from the " .. from, io.text:find("k0_" .. kind, 1, true), io)
  end
  local pairs = flin.variant { name = "pairs", mode = "quadratic",
                               mask = function (i, j)
    return i < j and 0 or 1 / (i - j + 1)
  end }
  ok, why = pcall(pairs.source, pairs, "cuda")
  check("pairs have no plan's source", not ok
        and tostring(why):find("has no plan", 1, true), why)
end

count.finish()
