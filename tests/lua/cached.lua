-- Masks over all pairs of tokens, token by token: keys and values that are kept
-- give what the whole call gives, in float64, also where the ring of a window
-- has come round, in parts, in packed calls, from pools, and until there is no
-- place left.
local flin = require "flin"
local exp = flin.exp

local count = require "support.count"
local check <const> = count.check

local function weighed(i, j, p)
  if i < j then return 0 end
  return p.b[j] / (i - j + 1)
end
local function within(W)
  return function (i, j)
    if i < j or i - j >= W then return 0 end
    return 1
  end
end

local definitions <const> = {
  hyperbola = { mode = "quadratic", mask = weighed },
  window = { mode = "quadratic", mask = function (i, j, p)
    if i < j or i - j >= 20 then return 0 end
    return p.b[j] / (i - j + 1)
  end },
  sums = { mode = "quadratic", input = { s = "", a = "t", b = "t", c = "t" },
           mask = function (i, j, p)
    if i < j then return 0 end
    return p.s * p.b[j] / (i - j + 1) + flin.tanh(p.c_cumsum[i] * p.a[j - 1])
  end },
  pieces = { mode = "quadratic", mask = function (i, j, p)
    if i < j then return 0 end
    if j < 3 then return p.a[i] end
    if i > 12 then return p.b[i - 2] / (j + 1) end
    return exp(p.g_cumsum[i] - p.g_cumsum[j]) / (i - j + 1)
  end },
  keyed = { mode = "quadratic", input = { b = "t k", c = "t v" },
            mask = function (i, j, p)
    if i < j then return 0 end
    return p.b[j] * p.c[i] / (i - j + 1)
  end },
  documents = { mode = "quadratic", mask = function (i, j, p)
    if i < j then return 0 end
    return flin.eq(flin.sign(p.doc[i]), flin.sign(p.doc[j]))
  end },
  softmax = { normalise = "softmax" },
  scaled = { normalise = "softmax", scale = 0.3 },
  near = { normalise = "softmax", mask = within(7) },
  long = { normalise = "softmax", mask = within(300) },
  behind = { normalise = "softmax", mask = function (i, j)
    if i - j < 2 or i - j > 11 then return 0 end      -- first rows are empty
    return 1
  end },
  biased = { normalise = "softmax", input = { slope = ": positive" },
             mask = function (i, j, p)
    if i < j then return 0 end
    return exp(-p.slope * (i - j))
  end },
  capped = { normalise = "softmax", score = function (s, i, j, p)
    return 30 * flin.tanh(s / 30) + p.b[j] + p.a[i - 1]
  end },
  lowest = { normalise = "softmax", score = function (s, i, j, p)
    return s + p.b[j] - 2e38                          -- a row is not empty yet
  end },
  dilated = { normalise = "softmax", mask = function (i, j)
    if i < j or i - j > 24 or (i - j) % 4 > 0 then return 0 end
    return 1
  end },
}

local T <const>, K <const>, V <const> = 50, 5, 3

local function part(x, from, n)
  local y = {}
  for name, t in pairs(x) do
    y[name] = t.shape[2] == T and t:narrow(2, from, n) or t
  end
  return y
end

local function off(y, want) return (y:to "float64" - want):maxabs() end

-- 1e-5: of float32, as for every variant. 1e-12: float64, some hundred terms.
local function by_tokens(name, v, x, y)
  local worst, state = 0, nil
  for t = 1, T do
    local one, z = part(x, t, 1), nil
    one.state = state
    z, state = v:step(one)
    worst = math.max(worst, off(z, y:narrow(2, t, 1)))
  end
  check(name .. " step", worst <= 1e-5 * (1 + y:maxabs()), worst)
end

local function in_parts(name, v, x, y, mode, limit)
  local at, state = 1, {}
  for _, n in ipairs { 13, 1, T - 14 } do
    local some, z = part(x, at, n), nil
    some.initial_state = state
    z, state = v[mode](v, some)
    local e = off(z, y:narrow(2, at, n))
    check(("%s %s from token %d on"):format(name, mode, at),
          e <= limit * (1 + y:maxabs()), e)
    at = at + n
  end
end

for name, def in pairs(definitions) do
  def.name, def.tokens = name, T
  local v = flin.variant(def)
  local x = v:random { B = 2, H = 1, HV = 2, T = T, K = K, V = V,
                       dtype = "float64" }
  local y = v:reference(x)
  in_parts(name, v, x, y, "reference", 1e-12)
  local rounded = {}
  for n, t in pairs(x) do rounded[n] = t:to "float32" end
  by_tokens(name, v, rounded, y)
  in_parts(name, v, rounded, y, "forward", 1e-5)
  local e = v:check { T = 30, H = 1, HV = 2, K = K, V = V }
  check(name .. " check", e.step and e.worst <= 1e-5, e)
  e = v:check { T = 30, K = K, V = V, cu_seqlens = { 0, 7, 7, 30 } }
  check(name .. " packed", e.step and e.worst <= 1e-5, e)
end

-- A pool of states, and tokens that may be taken back.
do
  local v = flin.variant { name = "pooled", normalise = "softmax", tokens = 8 }
  local x = v:random { B = 2, H = 1, T = 3, K = K, V = V }
  local y = v:forward(x)
  local pool = {}
  for _, s in ipairs(v.states) do
    pool[s.name] = s.axes == "" and flin.zeros(6, 1)
      or s.axes == "band" and flin.zeros(6, 1, 8)
      or flin.zeros(6, 1, s.axes == "k band" and K or V, 8)
  end
  x.state = pool
  x.state_index = flin.tensor({ { 4, 4, 0, 1 }, { 2, 2, 3, 5 } },
                              { dtype = "int64" })
  local e = (v:verify(x) - y):maxabs()
  check("verify", e <= 1e-6, e)
  check("pool", pool.position[{ 6, 1 }] == 3 and pool.position[{ 1, 1 }] == 2,
        pool.position)
end

-- ---- what is said ----

local function said(name, message, f, ...)
  local ok, why = pcall(f, ...)
  check(name, not ok and tostring(why):find(message, 1, true), why)
end

do
  local v = flin.variant { name = "short", normalise = "softmax", tokens = 3 }
  local x = v:random { B = 1, H = 1, T = 4, K = 4, V = 4 }
  x.initial_state = {}
  said("no place left, at once", "short keeps 3 tokens, but sequence 0 comes "
       .. "to 4", v.forward, v, x)
  x.cu_seqlens = { 0, 1, 4 }
  check("sequences by themselves", pcall(v.forward, v, x), "refused")
  x.cu_seqlens = nil
  local one = {}
  for _, n in ipairs { "q", "k", "v" } do one[n] = x[n]:narrow(2, 1, 1) end
  for _ = 1, 3 do
    local _, state = v:step(one)
    one.state = state
  end
  said("no place left", "flin.variant { tokens = 6, ... }", v.step, v, one)
  check("what it keeps", tostring(v):find("keeps up to 3 tokens", 1, true), v)
  check("its states", #v.states == 4, #v.states)
  check("without states it has no bound", pcall(v.forward, v, { q = x.q,
        k = x.k, v = x.v }), "refused")
end
do
  local v = flin.variant { name = "all", mode = "quadratic", mask = weighed }
  said("nothing says how many", "flin.variant { tokens = 4096, ... }", v.step,
       v, v:random { T = 1 })
  v = flin.variant { name = "both", normalise = "softmax", causal = false }
  said("both directions", "both weighs tokens that are still to come", v.step,
       v, v:random { T = 1 })
end
said("a mask that factors", "a state is as large after a million tokens",
     flin.variant, { tokens = 4, mask = function (i, j)
  if i < j then return 0 end
  return 1
end })
for _, n in ipairs { 0, 1.5, -3, 1 << 21, "4" } do
  said("tokens = " .. n, "tokens must be a whole number", flin.variant,
       { normalise = "softmax", tokens = n })
end

count.finish()
