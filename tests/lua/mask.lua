-- Masks: what is accepted computes sum over j of L(i, j) (q_i . k_j) v_j, in
-- the step and in the chunk form; what is refused is of high rank.
local flin = require "flin"
local exp, where, lt = flin.exp, flin.where, flin.lt

local count = require "support.count"
local check <const> = count.check

local masks = require "support.masks"
local T <const>, K <const>, V <const> = masks.T, masks.K, masks.V
local random <const>, number <const> = masks.random, masks.number
local draw <const>, plain <const> = masks.draw, masks.plain
local distance <const>, same_as_sum <const> = masks.distance, masks.same_as_sum

-- ---- masks against the plain sum ----

local my_mask = function (i, j, p)
  if i < j then return 0 end
  return p.beta[j] * exp(p.g_cumsum[i] - p.g_cumsum[j]) * p.delta[j]
end
same_as_sum("decay and columns", my_mask)

same_as_sum("retnet", function (i, j, p)
  if i < j then return 0 end
  return exp(-0.1 * (i - j))
end)

same_as_sum("alibi", function (i, j, p)
  return where(lt(i, j), 0, exp(-(i - j) * p.s^2))
end, { input = { s = "" } })

same_as_sum("a difference of constants", function (i, j, p)
  if i < j then return 0 end
  return exp((flin.sigmoid(p.s) - 1) * (i - j))
end, { input = { s = "" } })

-- Exponents that i and j enter with opposite polynomials of constants.
local affine = {
  { { s = "" }, function (i, j, p) return (p.s + 0.1) * (j - i) end },
  { { s = "" }, function (i, j, p)
    return (0.5 * p.s - 0.25) * (i - j) / 3
  end },
  { { s = "" }, function (i, j, p) return p.s * (i - j) - (i - j) end },
  { { r = "", s = "" }, function (i, j, p)
    return (p.s - 1) * (i - j) + (p.r - 2) * (i - j)
  end },
  { { s = "" }, function (i, j, p) return (p.s - 1) / 2 * (i - j) end },
  { { r = "", s = "" }, function (i, j, p)
    return (3 - p.s * 2 - p.r) * (j - i) * 0.1
  end },
  { { r = "", s = "" }, function (i, j, p)
    return (i - j) * p.s - 0.3 * (i - j) * p.r + (j - i)
  end },
  { { r = "", s = "" }, function (i, j, p)
    return (p.s - p.r - 1) * i + (p.r - p.s + 1) * j
  end },
  { { r = "", s = "" }, function (i, j, p)
    return (p.s + p.r - 1) * i + (1 - p.r - p.s) * j
  end },
  { { s = "" }, function (i, j, p)
    return 2 * (p.s - 1) * i + (2 - 2 * p.s) * j
  end },
  { { s = "" }, function (i, j, p)
    return (p.s * p.s - 1) * i + (1 - p.s^2) * j
  end },
  { { r = "", s = "" }, function (i, j, p)
    return (p.s - 1) * (p.r + 1) * i - (p.s * p.r + p.s - p.r - 1) * j
  end },
  { { c = "t", s = "" }, function (i, j, p)
    return (p.s - 1) * (p.c_cumsum[j] - p.c_cumsum[i]) * 0.1
  end },
  { { s = "" }, function (i, j, p) return (i - j) / (p.s - 3) end },
}
for n, row in ipairs(affine) do
  same_as_sum("affine exponent " .. n, function (i, j, p)
    if i < j then return 0 end
    return exp(0.1 * row[2](i, j, p))
  end, { input = row[1] }, 3e-5)
end
for n, row in ipairs {
  { { s = "" }, function (i, j, p) return (p.s - 1) * i - p.s * j end },
  { { s = "" }, function (i, j, p)
    return (p.s * p.s - 1) * i + (1 - p.s) * j
  end },
  { { s = "" }, function (i, j, p) return (p.s + 1e-6) * i - p.s * j end },
} do
  local ok, why = pcall(flin.variant, { mask = function (i, j, p)
    if i < j then return 0 end
    return exp(row[2](i, j, p))
  end, input = row[1] })
  check("no difference " .. n, not ok and tostring(why):find "i enters with",
        why)
end

same_as_sum("a window and a column", function (i, j, p)
  if i < j then return 0 end
  if i - j <= 7 then return p.w[i] * p.u[j] end
  return j < 1 and 1 or 0
end)

same_as_sum("exclusive", function (i, j, p)
  if i <= j then return 0 end
  return exp(p.g_cumsum[i - 1] - p.g_cumsum[j])
end)

same_as_sum("bonus on the diagonal", function (i, j, p)
  if i < j then return 0 end
  if i == j then return p.u[i] end
  return exp(p.g_cumsum[i - 1] - p.g_cumsum[j])
end, { input = { u = "t", g = "t : log_decay" } })

same_as_sum("late start", function (i, j, p)
  if i - j < 4 then return 0 end
  return p.a[i] * exp(p.g_cumsum[i] - p.g_cumsum[j]) * p.b[j - 1]
end)

same_as_sum("band", function (i, j, p)
  local d = i - j
  if d < 0 or d > 3 then return 0 end
  return p.w[j] / (d + 1)
end)

same_as_sum("loop", function (i, j, p)
  if i < j then return 0 end
  for d = 0, 3 do
    if i - j <= d then return p.a[j] * (d + 1) end
  end
  return exp(p.g_cumsum[i] - p.g_cumsum[j])
end)

same_as_sum("coupled in a band", function (i, j, p)
  if i < j or i - j > 2 then return 0 end
  return flin.sigmoid(p.a[i] * p.b[j] + p.c_cumsum[i] - p.c_cumsum[j])
end)

same_as_sum("sink", function (i, j, p)
  if i < j then return 0 end
  if j < 2 then return p.s end
  return exp(p.g_cumsum[i] - p.g_cumsum[j])
end, { input = { s = "", g = "t : log_decay" } })

same_as_sum("the size of a decay", function (i, j, p)
  return exp(-flin.abs(p.g_cumsum[i] - p.g_cumsum[j] + 0.1 * (j - i)))
end, { causal = false })

same_as_sum("of a key's decay", function (i, j, p)
  if i < j then return 0 end
  return exp(-flin.abs(p.g_cumsum[i] - p.g_cumsum[j]))
end, { input = { g = "t : positive" } })

do                              -- of sums of either sign nothing is known
  local ok, why = pcall(flin.variant, { causal = false, input = { g = "t" },
                                        mask = function (i, j, p)
    return exp(-flin.abs(p.g_cumsum[i] - p.g_cumsum[j]))
  end })
  check("a sum of either sign", not ok and tostring(why):find "does not factor",
        why)
end

same_as_sum("two decays", function (i, j, p)
  if i < j then return 0 end
  return p.a[i] * exp(p.g_cumsum[i] - p.g_cumsum[j])
       + p.b[j] * exp(2 * p.f_cumsum[i] - 2 * p.f_cumsum[j]) + 1
end)

same_as_sum("signs and zeros", function (i, j, p)
  if i < j then return 0 end
  return flin.sign(p.a[i] * p.b[j]) * flin.abs(p.a[i] * p.b[j])
       + where(lt(p.a[j], 0), 0, exp(p.g_cumsum[i] - p.g_cumsum[j]))
end)

same_as_sum("slope", function (i, j, p)
  if i < j then return 0 end
  return (i - j + 1) * exp(-0.2 * (i - j))
end, nil, 3e-5)                 -- i and j times S cancel

same_as_sum("rotation", function (i, j, p)
  if i < j then return 0 end
  return flin.cos(p.angle_cumsum[i] - p.angle_cumsum[j]) * exp(0.3 * (j - i))
end, { input = { angle = "t : angle" } })

same_as_sum("positions compared in a value", function (i, j, p)
  if i < j then return 0 end
  return exp(-flin.abs(i - j) * 0.3) * flin.max(i - j, 2)
end, nil, 3e-5)

same_as_sum("a sum of the user's own", function (i, j, p)
  if i < j then return 0 end
  return exp(p.c[i] - p.c[j])
end)

-- ---- an exponent is never taken apart ----

do
  local v = flin.variant { mask = my_mask }
  local x = draw(v)
  x.g = flin.full({ 1, T, 1 }, -104)
  local y = v:forward(x):totable()[1]
  local finite = true
  for t = 1, T do finite = finite and math.abs(y[t][1][1]) < 1e9 end
  check("gates of -104", finite, "not finite")
end

-- ---- mode = "quadratic" ----

do
  local mask = function (i, j, p)
    if i < j then return 0 end
    return p.s * p.b[j] / (i - j + 1) + flin.tanh(p.c_cumsum[i] * p.a[j - 1])
  end
  local v = flin.variant { mask = mask, mode = "quadratic",
                           input = { s = "", a = "t", b = "t", c = "t" } }
  local tensors, numbers = draw(v)
  local want = plain(flin.mask_values(mask, T, numbers), numbers)
  local e = distance(v:reference(tensors), want)
  check("quadratic reference", e <= 1e-12, e)
  e = distance(v:forward(tensors), want)
  check("quadratic forward", e <= 1e-5, e)
  check("quadratic has no step", not pcall(v.step, v, tensors), "it ran")
  -- exp(x) written so that it does not factor, in packed calls with groups
  local function decay(i, j) return -0.1 * (i - j) end
  local by_state = flin.variant { mask = function (i, j, p)
    if i < j then return 0 end
    return p.b[j] * exp(decay(i, j))
  end }
  local by_pair = flin.variant { mode = "quadratic", mask = function (i, j, p)
    if i < j then return 0 end
    local s = flin.sigmoid(decay(i, j))
    return p.b[j] * s / (1 - s)
  end }
  local x = { q = flin.randn({ 1, T, 2, K }, { seed = 1 }),
              k = flin.randn({ 1, T, 1, K }, { seed = 2 }),
              v = flin.randn({ 1, T, 4, V }, { seed = 3 }),
              b = flin.randn({ 1, T, 4 }, { seed = 4 }),
              cu_seqlens = { 0, 3, 3, T } }
  local a, b = by_state:forward(x), by_pair:forward(x)
  local worst = 0
  for t = 1, T do
    for h = 1, 4 do
      for d = 1, V do
        worst = math.max(worst, math.abs(a[{ 1, t, h, d }] - b[{ 1, t, h, d }]))
      end
    end
  end
  check("quadratic, packed and grouped", worst < 1e-4, worst)
  do -- gradients, by central differences: cumulative sums, constants, lags,
     -- a region of its own, packed sequences, heads that are shared
    local input = { s = "", a = "t", b = "t" }
    local w = flin.variant { mode = "quadratic", input = input,
                             mask = function (i, j, p)
      if i < j then return 0 end
      local far = p.b[j] / (i - j + 1) * flin.exp(p.a_cumsum[i] - p.a_cumsum[j])
      if i - j > 3 then return far * p.s end
      return far + p.b[i - 1] * p.b[j]
    end }
    local function r(...) return flin.randn({ ... }, { dtype = "float64" }) end
    local x = { q = r(1, 9, 1, 3), k = r(1, 9, 1, 3), v = r(1, 9, 2, 2),
                a = r(1, 9, 2) * 0.3, b = r(1, 9, 1), s = r(2),
                cu_seqlens = { 0, 7, 7, 9 } }
    local dy = r(1, 9, 2, 2)
    x.dy = dy
    local grad = w:reference_backward(x)
    local rounded = w:backward(x)
    local function loss()
      x.dy = nil
      return (w:reference(x) * dy):sum()
    end
    for name, g in pairs(grad) do
      if name ~= "initial_state" then
        local was = x[name]
        local step = flin.randn(was.shape, { dtype = "float64" })
        x[name] = was + step * 1e-6
        local up = loss()
        x[name] = was - step * 1e-6
        local want = (up - loss()) / 2e-6
        x[name] = was
        local got = (g * step):sum()
        check("quadratic d_" .. name, math.abs(got - want)
              <= 1e-6 * (1 + math.abs(want)), got - want)
        check("quadratic backward " .. name, (g - rounded[name]):maxabs()
              <= 1e-5 * (1 + g:maxabs()), "it differs")
      end
    end
    for what, e in pairs(w:check { T = 12, H = 1, HV = 2, K = 3, V = 2 }) do
      if type(e) == "number" then check("quadratic " .. what, e < 1e-5, e) end
    end
  end
  v = flin.variant { mask = my_mask, mode = "quadratic" }
  check("a mask that factors has its states", #v.states == 1, #v.states)
  local function window(i, j, p)
    if i < j or i - j >= 9 then return 0 end
    return p.b[j] * flin.exp(p.g_cumsum[i] - p.g_cumsum[j])
  end
  v = flin.variant { mask = window, mode = "quadratic" }
  check("a window's pairs are taken within it", v.form:find "over all pairs",
        v.form)
  local x = v:random { B = 1, T = 50, H = 2, K = 4, V = 3 }
  local far = (v:forward(x)
               - flin.variant { mask = window }:forward(x)):maxabs()
  check("as the band's", far < 1e-5, far)
end

-- ---- reports ----

do
  local r = flin.mask_report(my_mask)
  check("report factors", r.factors and #r == 1, r.text)
  check("report column", r[1].column == "beta[j]*delta[j]", r[1].column)
  check("report decay", r[1].decay == "exp(g_cumsum[i] - g_cumsum[j])",
        r[1].decay)
  r = flin.mask_report(function (i, j, p)
    if i < j then return 0 end
    return 1 / (i - j + 1)
  end)
  check("report refuses", not r.factors and tostring(r):find(
        "1/(i - j + 1) couples i and j", 1, true), r.text)
end

-- ---- random masks against brute-force rank ----

-- Each: a factor, and whether it couples i and j for good.
local factors = {
  { function (i, j, p) return p.a[i] end },
  { function (i, j, p) return p.b[j] end },
  { function (i, j, p) return p.b[i] + 2 * p.c[i] end },
  { function (i, j, p) return flin.sigmoid(p.c[j]) end },
  { function (i, j, p) return exp(p.a_cumsum[i] - p.a_cumsum[j]) end },
  { function (i, j, p) return exp(0.25 * (j - i)) end },
  { function (i, j, p) return p.a[i] + p.b[j] end },
  { function (i, j, p) return where(lt(p.a[j], 0), p.b[i], 1) end },
  { function (i, j, p) return i - j + 2 end },
  { function (i, j, p) return exp(p.a[i] + p.b[j]) end },
  { function (i, j, p) return 1 / (i - j + 1) end, true },
  { function (i, j, p) return flin.tanh(p.a[i] * p.b[j]) end, true },
  { function (i, j, p) return exp(-(i - j)^2 / 20) end, true },
  { function (i, j, p) return flin.max(p.a[i], p.b[j]) end, true },
}

local function random_mask()
  local term, coupled = {}, false
  for n = 1, random(3) do
    term[n] = {}
    for m = 1, random(3) do
      local f = factors[random(#factors)]
      term[n][m] = f[1]
      coupled = coupled or f[2]
    end
  end
  return function (i, j, p)
    if i < j then return 0 end
    local s = 0
    for _, t in ipairs(term) do
      local x = 1
      for _, f in ipairs(t) do x = x * f(i, j, p) end
      s = s + x
    end
    return s
  end, coupled
end

-- By elimination, the largest entry first.
local function rank(a, tolerance)
  local n, size = #a, nil
  for k = 1, n do
    local best, br, bc = 0, k, k
    for r = k, n do
      for c = k, n do
        local x = math.abs(a[r][c])
        if x > best then best, br, bc = x, r, c end
      end
    end
    size = size or best
    if best <= tolerance * size then return k - 1 end
    a[k], a[br] = a[br], a[k]
    for r = 1, n do a[r][k], a[r][bc] = a[r][bc], a[r][k] end
    for r = k + 1, n do
      local f = a[r][k] / a[k][k]
      for c = k, n do a[r][c] = a[r][c] - f * a[k][c] end
    end
  end
  return n
end

local SIZE <const> = 24
local function off_diagonal(mask)
  local p = {}
  for _, name in ipairs { "a", "b", "c" } do
    p[name] = {}
    for t = 1, 2 * SIZE do p[name][t] = number() end
  end
  local L, block = flin.mask_values(mask, 2 * SIZE, p), {}
  for i = 1, SIZE do
    block[i] = table.move(L[SIZE + i], 1, SIZE, 1, {})
  end
  return block
end

for n = 1, 60 do
  local mask, coupled = random_mask()
  local r = flin.mask_report(mask)
  check("random mask " .. n .. " verdict", r.factors == not coupled, r.text)
  if r.factors then
    local got = rank(off_diagonal(mask), 1e-11)
    check("random mask " .. n .. " rank", got <= #r, got)
    if n % 4 == 0 then same_as_sum("random mask " .. n, mask, nil, 1e-3) end
  else
    -- of rank 4 at least: no sum of few products, at any tolerance near 1e-6
    local got = rank(off_diagonal(mask), 1e-7)
    check("random mask " .. n .. " refused", got >= 4, got)
  end
end

count.finish()
