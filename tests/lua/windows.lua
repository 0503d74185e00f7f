-- Windows wider than a chunk: what they keep is the plain function's, forward,
-- backward and token by token, also where rings have come round.
local flin = require "flin"
local exp = flin.exp

local count = require "support.count"
local check <const> = count.check

local function holds(name, W, T, mask, def)
  def = def or {}
  def.name, def.mask = name, mask
  local ok, v = pcall(flin.variant, def)
  check(name .. " compiles", ok, v)
  if not ok then return end
  local e = v:check { B = 1, H = 1, T = T, K = 4, V = 3 }
  check(("%s of %d"):format(name, W), e.worst <= 1e-5, e)
  return v
end

for W, T in pairs { [129] = 300, [256] = 600 } do
  holds("a decay in a window", W, T, function (i, j, p)
    if i < j or i - j >= W then return 0 end
    return p.b[j] * exp(p.g_cumsum[i] - p.g_cumsum[j])
  end)
end
holds("plain", 1024, 1100, function (i, j)
  if i < j or i - j >= 1024 then return 0 end
  return 1
end)
holds("beside a decay", 200, 500, function (i, j, p)
  if i < j then return 0 end
  if i - j < 200 then return p.w[i] / (i - j + 1) end
  return exp(p.g_cumsum[i] - p.g_cumsum[j])
end)
holds("a late start", 300, 700, function (i, j, p)
  if i - j < 300 then return 0 end
  return p.b[j] * exp(p.g_cumsum[i] - p.g_cumsum[j])
end)
holds("dilated", 512, 1100, function (i, j, p)
  if i < j or i - j >= 512 or (i - j) % 64 > 0 then return 0 end
  return p.b[j]
end)
holds("of both sides", 200, 500, function (i, j, p)
  if flin.abs(i - j) >= 200 then return 0 end
  return p.b[j]
end, { causal = false })
holds("of each key", 200, 450, function (i, j, p)
  if i < j or i - j >= 200 then return 0 end
  return exp(p.g_cumsum[i] - p.g_cumsum[j])
end, { input = { g = "t k : log_decay" } })
holds("a token far back", 300, 700, function (i, j, p)
  if i < j then return 0 end
  return p.x[i - 300] * exp(p.g_cumsum[i] - p.g_cumsum[j])
end)

-- Packed sequences; and a call that goes on where another has ended.
do
  local v = flin.variant { name = "window", mask = function (i, j, p)
    if i < j or i - j >= 150 then return 0 end
    return p.b[j] * exp(p.g_cumsum[i] - p.g_cumsum[j])
  end }
  local e = v:check { H = 1, T = 400, K = 4, V = 3,
                      cu_seqlens = { 0, 1, 1, 170, 400 } }
  check("packed", e.worst <= 1e-5, e)
  local x = v:random { B = 2, H = 2, T = 1700, K = 4, V = 3 }
  local y, at, state = v:forward(x), 1, nil
  for _, n in ipairs { 100, 1, 299, 300, 1, 999 } do
    local part = { initial_state = state }
    for name, t in pairs(x) do part[name] = t:narrow(2, at, n) end
    local z
    z, state = v:forward(part)
    local off = (y:narrow(2, at, n) - z):maxabs() / y:maxabs()
    check(("from token %d on"):format(at), off <= 1e-5, off)
    at = at + n
  end
  local last, all = state, select(2, v:forward(x))
  for name, s in pairs(all) do
    local off = (s - last[name]):maxabs()
    check("what is kept at the end: " .. name, off <= 1e-4, off)
  end
end

for name, mask in pairs {
  ["a band of i - j up to 4999"] = function (i, j)
    if i < j or i - j >= 5000 then return 0 end
    return 1
  end,
  ["p.x[i - 5000] is 5000 tokens back"] = function (i, j, p)
    if i < j then return 0 end
    return p.x[i - 5000]
  end,
  ["p.x_cumsum[i - 200] is 200 tokens back"] = function (i, j, p)
    if i < j then return 0 end
    return exp(p.x_cumsum[i - 200] - p.x_cumsum[j])
  end } do
  local ok, why = pcall(flin.variant, { mask = mask })
  check(name, not ok and tostring(why):find(name, 1, true), why)
end

-- ---- two scans in blocks of the window's width ----

-- Of a window of W: where blocks end within a sequence, with it, before it.
local function within(W, f)
  return function (i, j, p)
    if i < j or i - j >= W then return 0 end
    return f(i, j, p)
  end
end
local function decay(i, j, p) return exp(p.g_cumsum[i] - p.g_cumsum[j]) end

local lengths <const> = {
  { B = 1, H = 1, T = 200 }, { B = 2, H = 2, T = 129 },
  { B = 1, H = 2, T = 64 }, { B = 2, H = 1, T = 1 },
  { B = 1, H = 1, T = 150, chunk = 16 },
  { H = 1, T = 400, cu_seqlens = { 0, 1, 1, 65, 193, 400 } } }

local forms <const> = {
  { "plain", within(64, function () return 1 end) },
  { "behind the diagonal", function (i, j, p)
    if i <= j or i - j > 64 then return 0 end
    return p.w[i] * decay(i, j, p)
  end },
  { "one input of both tokens", within(64, function (i, j, p)
    return p.b[i] * p.b[j] * decay(i, j, p)
  end) },
  { "a constant's decay", within(64, function (i, j, p)
    return p.c * exp((j - i) * p.s)
  end), { c = "", s = "" } },
  { "two products", within(64, function (i, j, p)
    return (p.b[j] + flin.cos(p.x[i] - p.x[j])) * decay(i, j, p)
      * exp((j - i) / 8)
  end) },
  { "of each key", within(64, function (i, j, p)
    return p.b[j] * decay(i, j, p)
  end), { g = "t k : log_decay", b = "t k" } },
  { "of each value", within(64, decay), { g = "t v : log_decay" } },
  { "of names that are taken", within(64, function (i, j, p)
    return p.lead[j] * p.q_[i] * decay(i, j, p)
  end) },
}
for _, form in ipairs(forms) do
  local v = flin.variant { name = "scans", mask = form[2], input = form[3] }
  check(form[1] .. " has two scans",
        tostring(v):find "two scans in blocks of 6[45] tokens", v)
  for n, size in ipairs(lengths) do
    local given = { K = 5, V = 3 }
    for name, x in pairs(size) do given[name] = x end
    local e = v:check(given)
    check(("%s, lengths %d"):format(form[1], n), e.worst <= 1e-5, e)
  end
end

-- What may grow or is coupled is not split in two.
for name, form in pairs {
  growing = { within(64, decay), { g = "t" } },
  coupled = { within(64, function (i, j, p) return p.w[i] / (i - j + 1) end) },
  placed = { within(64, function (i, j, p) return p.w[i] * (j % 3) end) },
} do
  local v = flin.variant { name = name, mask = form[1], input = form[2] }
  check(name .. " is one band", not tostring(v):find("two scans", 1, true), v)
  local e = v:check { B = 1, H = 1, T = 150, K = 5, V = 3 }
  check(name, e.worst <= 1e-5, e)
end

local function distance(x, want)
  local d = x:to("float64") - want
  return math.sqrt((d * d):sum() / ((want * want):sum() + 1e-40))
end

local function against_truth(name, v, x, most)
  local want = {}
  for n, t in pairs(x) do want[n] = t:to("float64") end
  local y, _, saved = v:forward(x, { save = true })
  local e = distance(y, (v:reference(want)))
  check(name, e <= most, e)
  local dy = flin.randn(y.shape, { seed = 7 })
  want.dy = dy:to("float64")
  local d = v:reference_backward(want)
  for input, g in pairs(v:backward { saved = saved, dy = dy:to(y.dtype) }) do
    if input ~= "initial_state" then
      e = distance(g, d[input])
      check(name .. ", d_" .. input, e <= most, e)
    else
      for state, ds in pairs(g) do
        check(name .. ", of its first " .. state, ds:maxabs() == 0, ds)
      end
    end
  end
end

do
  local v = flin.variant { name = "scans", mask = within(64, function (i, j, p)
    return p.b[j] * decay(i, j, p)
  end) }
  -- Gates that leave nothing, at the ends of blocks and within them.
  local x = v:random { B = 1, H = 1, T = 300, K = 5, V = 3, seed = 3 }
  for n, g in pairs { [20] = -math.huge, [64] = -1e9, [65] = -math.huge,
                      [128] = -math.huge, [200] = -1e6, [300] = -1e9 } do
    x.g[{ 1, n, 1 }] = g
  end
  against_truth("walls", v, x, 1e-5)
  x = v:random { B = 1, H = 1, T = 300, K = 5, V = 3, seed = 3 }
  x.g:fill(-30)                         -- a block leaves exp(-1920)
  against_truth("strong gates", v, x, 1e-5)
  -- Narrow tensors are rounded once: 2^-9, and what products of them lose.
  x = v:random { B = 2, H = 2, T = 150, K = 5, V = 3, seed = 4,
                 dtype = "bfloat16" }
  against_truth("bfloat16", v, x, 6e-3)
  -- Heads that share a tensor.
  x = v:random { B = 1, H = 4, T = 150, K = 5, V = 3, seed = 5 }
  for _, name in ipairs { "q", "k", "b" } do
    x[name] = x[name]:narrow(3, 1, name == "b" and 1 or 2)
  end
  against_truth("shared heads", v, x, 1e-5)
end

-- A window takes as long as another: eight times as wide, bands took about as
-- many times as long.
do
  local function seconds(W)
    local v = flin.variant { name = "wide", mask = within(W, decay) }
    local x = v:random { B = 1, H = 1, T = 8192, K = 32, V = 32, seed = 1 }
    local least = math.huge
    for _ = 1, 4 do
      local start = flin.clock()
      v:forward(x)
      least = math.min(least, flin.clock() - start)
    end
    return least
  end
  local narrow, wide = seconds(256), seconds(2048)
  check("width takes no time", wide < 4 * narrow,
        ("%.4f s, and %.4f s"):format(narrow, wide))
end

count.finish()
