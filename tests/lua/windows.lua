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
  local x = v:random { B = 1, H = 1, T = 700, K = 4, V = 3 }
  local y, at, state = v:forward(x), 1, nil
  for _, n in ipairs { 100, 1, 299, 300 } do
    local part = { initial_state = state }
    for name, t in pairs(x) do part[name] = t:narrow(2, at, n) end
    local z
    z, state = v:forward(part)
    local off = (y:narrow(2, at, n) - z):maxabs()
    check(("from token %d on"):format(at), off <= 1e-5, off)
    at = at + n
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

count.finish()
