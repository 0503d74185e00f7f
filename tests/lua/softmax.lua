-- Softmax attention: masks whose weights a row's sum is divided by, in float64
-- against sums written out here, gradients against differences.
local flin = require "flin"
local exp, tanh = flin.exp, flin.tanh

local passed, failed = 0, 0
local function check(what, ok, got)
  if ok then passed = passed + 1 return end
  failed = failed + 1
  print("FAIL " .. what, got)
end

local T <const>, K <const>, V <const> = 9, 3, 2
local function r(...) return flin.randn({ ... }, { dtype = "float64" }) end

-- y by definition, of one head; logit(s, i, j): minus infinity where there is
-- no pair.
local function plain(x, logit)
  local q, k, v = x.q:totable()[1], x.k:totable()[1], x.v:totable()[1]
  local y = {}
  for i = 1, T do
    local w, all = {}, 0
    for j = 1, i do
      local s = 0
      for d = 1, K do s = s + q[i][1][d] * k[j][1][d] end
      w[j] = math.exp(logit(s, i - 1, j - 1))
      all = all + w[j]
    end
    y[i] = {}
    for d = 1, V do
      y[i][d] = 0
      for j = 1, i do
        y[i][d] = y[i][d] + (all > 0 and w[j] / all or 0) * v[j][1][d]
      end
    end
  end
  return y
end

local function distance(y, want)
  local worst, got = 0, y:totable()[1]
  for i = 1, T do
    for d = 1, V do
      worst = math.max(worst, math.abs(got[i][1][d] - want[i][d]))
    end
  end
  return worst
end

local function one_head(v)
  local x = {}
  for _, input in ipairs(v.inputs) do
    local n = input.name
    x[n] = n == "v" and r(1, T, 1, V) or (n == "q" or n == "k")
      and r(1, T, 1, K) or input.axes:find "t" and r(1, T, 1) or r(1)
  end
  return x
end

-- Gradients of inputs against differences, of packed sequences and shared
-- heads.
local function differences(name, v)
  local x = { cu_seqlens = { 0, 7, 7, T } }
  for _, input in ipairs(v.inputs) do
    local n = input.name
    x[n] = n == "q" and r(1, T, 4, K) or n == "k" and r(1, T, 2, K)
      or n == "v" and r(1, T, 2, V)
      or (input.axes:find "t" and r(1, T, 4) or r(4)) * 0.3
  end
  local dy = r(1, T, 4, V)
  x.dy = dy
  local grad, rounded = v:reference_backward(x), v:backward(x)
  x.dy = nil
  local function loss() return (v:reference(x) * dy):sum() end
  for n, g in pairs(grad) do
    if n ~= "initial_state" then
      local was, step = x[n], r(table.unpack(x[n].shape))
      x[n] = was + step * 1e-6
      local up = loss()
      x[n] = was - step * 1e-6
      local want, got = (up - loss()) / 2e-6, (g * step):sum()
      x[n] = was
      check(name .. ": d_" .. n, math.abs(got - want)
            <= 1e-6 * (1 + math.abs(want)), got - want)
      check(name .. ": d_" .. n .. " in float32", (g - rounded[n]):maxabs()
            <= 1e-5 * (1 + g:maxabs()), "it differs")
    end
  end
end

local scale <const> = K ^ -0.5

do -- nothing but a name
  local v = flin.variant { name = "plain", normalise = "softmax" }
  local x = one_head(v)
  local e = distance(v:reference(x), plain(x, function (s)
    return s * scale
  end))
  check("causal", e <= 1e-14, e)
  differences("causal", v)
  for what, e in pairs(v:check { T = 12, H = 1, HV = 2, K = 3, V = 2 }) do
    if type(e) == "number" then check("check " .. what, e < 1e-5, e) end
  end
  check("no step", not pcall(v.step, v, x), "it ran")
end

do -- a window, and its own scale; the first token is left out of all
  local v = flin.variant { normalise = "softmax", scale = 0.7,
                           mask = function (i, j)
    if i < j or i - j >= 3 or j < 1 then return 0 end
    return 1
  end }
  local x = one_head(v)
  local y = v:reference(x)
  local e = distance(y, plain(x, function (s, i, j)
    return i - j < 3 and j > 0 and 0.7 * s or -math.huge
  end))
  check("window", e <= 1e-14, e)
  check("a row without pairs", y:narrow(2, 1, 1):maxabs() == 0, y)
  differences("window", v)
end

do -- linear biases, soft caps, a weight and a forgetting gate
  local v = flin.variant { normalise = "softmax", input = { slope = "",
                           w = "t", g = "t" },
                           mask = function (i, j, p)
    if i < j then return 0 end
    return p.w[j] ^ 2 * exp(-p.slope * (i - j))
         * exp(p.g_cumsum[i] - p.g_cumsum[j])
  end, score = function (s, i, j, p) return 2 * tanh(s / 2) end }
  local x = one_head(v)
  local w, g = x.w:totable()[1], x.g:totable()[1]
  local slope = x.slope:totable()[1]
  local e = distance(v:reference(x), plain(x, function (s, i, j)
    local sum = 0
    for t = j + 1, i do sum = sum + g[t + 1][1] end
    return 2 * (1 - 2 / (math.exp(s * scale) + 1))
         + math.log(w[j + 1][1] ^ 2) - slope * (i - j) + sum
  end))
  check("biases", e <= 1e-12, e)
  differences("biases", v)
end

do -- documents, by a condition, are those of cu_seqlens
  local v = flin.variant { normalise = "softmax", input = { doc = "t" },
                           mask = function (i, j, p)
    if i < j then return 0 end
    return flin.eq(p.doc[i], p.doc[j])
  end }
  local x = one_head(v)
  x.doc = flin.tensor { { { 0 }, { 0 }, { 1 }, { 1 }, { 1 }, { 2 }, { 2 },
                          { 2 }, { 2 } } }
  local w = flin.variant { normalise = "softmax" }
  local y = w:reference { q = x.q, k = x.k, v = x.v,
                          cu_seqlens = { 0, 2, 5, T } }
  check("documents", (v:reference(x) - y):maxabs() <= 1e-14, "they differ")
end

print(("%d passed, %d failed"):format(passed, failed))
os.exit(failed == 0)
