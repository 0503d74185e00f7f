-- Masks that read what differs from key to key, or from value to value: a mask
-- for each of these, as states, as pairs and in both directions.
local flin = require "flin"
local exp, sigmoid = flin.exp, flin.sigmoid

local count = require "support.count"
local check <const> = count.check

-- v:check holds y to the function itself, entry by entry.
local function holds(name, mask, input, def)
  def = def or {}
  def.name, def.mask, def.input = name, mask, input
  local ok, v = pcall(flin.variant, def)
  check(name .. " compiles", ok, v)
  if not ok then return end
  for _, chunk in ipairs { 8, 64 } do
    local e = v:check { T = 70, H = 1, HV = 2, K = 8, V = 6, chunk = chunk }
    check(name .. " in chunks of " .. chunk, e.worst <= 1e-5, e)
  end
  local e = v:check { T = 30, K = 4, V = 3, cu_seqlens = { 0, 7, 7, 30 } }
  check(name .. ", packed", e.worst <= 1e-5, e)
  return v
end

local gated = holds("gated", function (i, j, p)
  if i < j then return 0 end
  return exp(p.g_cumsum[i] - p.g_cumsum[j])
end, { g = "t k : log_decay" })
holds("columns and rows", function (i, j, p)
  if i < j then return 0 end
  return p.a[i] * p.b[j] * exp(p.g_cumsum[i] - p.g_cumsum[j])
end, { a = "t k", b = "t v", g = "t : log_decay" })
holds("slopes", function (i, j, p)
  if i < j then return 0 end
  return exp(-p.s * (i - j))
end, { s = "k : unit" })
holds("a bonus", function (i, j, p)
  if i < j then return 0 end
  if i == j then return p.u end
  return exp(p.g_cumsum[i - 1] - p.g_cumsum[j])
end, { u = "k", g = "t k : log_decay" })
holds("decays of values", function (i, j, p)
  if i < j then return 0 end
  return p.b[j] * exp(p.g_cumsum[i] - p.g_cumsum[j])
end, { b = "t v", g = "t v : log_decay" })
holds("a band", function (i, j, p)
  if i < j or i - j > 2 then return 0 end
  return sigmoid(p.a[i] * p.b[j])
end, { a = "t k", b = "t v" })
holds("a wider band", function (i, j, p)
  if i < j or i - j > 30 then return 0 end
  return p.b[j] * exp(p.g_cumsum[i] - p.g_cumsum[j])
end, { b = "t v", g = "t k : log_decay" })
holds("two sums", function (i, j, p)
  if i < j then return 0 end
  return exp(p.g_cumsum[i] - p.g_cumsum[j])
       + p.b[i] * exp(p.h_cumsum[i] - p.h_cumsum[j])
end, { b = "t", g = "t k : log_decay", h = "t : log_decay" })
holds("pairs", function (i, j, p)
  if i < j then return 0 end
  return p.s * p.b[i] * sigmoid(p.g[i] * p.g[j])
end, { g = "t k", s = "v", b = "t v" }, { mode = "quadratic" })
holds("both directions", function (i, j, p)
  if i < j then return exp(p.h_cumsum[j] - p.h_cumsum[i]) * p.b[j] end
  return p.s * exp(p.g_cumsum[i] - p.g_cumsum[j])
end, { g = "t k : log_decay", h = "t k : log_decay", s = "k", b = "t v" },
  { causal = false })

-- The gated mask is gated linear attention, to the bit.
do
  local x = gated:random { T = 100, K = 16, V = 16 }
  local e = (gated:forward(x) - flin.stdlib.gla:forward(x)):maxabs()
  check("gla", e == 0, e)
end

-- More entries than the function is run for: the trace's own result.
do
  local v = flin.variant { name = "many", input = { a = "t k", b = "t v" },
                           mask = function (i, j, p)
    if i < j then return 0 end
    return p.a[i] * p.b[j]
  end }
  local x = v:random { T = 9, K = 32, V = 32, dtype = "float64" }
  local y, state = v:reference(x)
  check("a reference of many masks", flin.is_tensor(y)
        and type(state) == "table", type(y))
end

-- A reset of some keys alone, in a band of its own sums.
for _, reset in ipairs { -1e9, -math.huge } do
  local v = flin.variant { name = "band", input = { g = "t k : log_decay" },
                           mask = function (i, j, p)
    if i < j or i - j > 30 then return 0 end
    return exp(p.g_cumsum[i] - p.g_cumsum[j])
  end }
  local x = v:random { B = 1, H = 1, T = 60, K = 2, V = 2 }
  local y = v:forward(x)
  x.g = x.g:clone()
  x.g[{ 1, 20, 1, 1 }] = reset
  local z = v:forward(x)
  local late = (y:narrow(2, 51, 10) - z:narrow(2, 51, 10)):maxabs()
  check("reset " .. reset, late <= 1e-5 and z:maxabs() < 1e6, late)
end

local function refused(name, input, def, message)
  def.input = input
  def.mask = def.mask or function (i, j, p)
    if i < j then return 0 end
    return p.w[j]
  end
  local ok, why = pcall(flin.variant, def)
  check(name, not ok and tostring(why):find(message, 1, true), why)
end

refused("other axes", { w = "t n" }, {}, "neither those of k nor of v")
refused("softmax", { w = "t k" }, { normalise = "softmax" },
        "a softmax weighs whole tokens")
refused("keys themselves", { k = "t k" }, { mask = function (i, j, p)
  if i < j then return 0 end
  return p.k[j]
end }, "the mask reads what it weighs")

count.finish()
