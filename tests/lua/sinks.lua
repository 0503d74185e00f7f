-- A window, and a sequence's first tokens beside it, which all rows weigh: the
-- sum and softmax, forward, backward, token by token and in parts, at lengths
-- that neither, one or both fit in.
local flin = require "flin"
local exp = flin.exp

local count = require "support.count"
local check <const> = count.check

local forms <const> = {
  { "plain", function (W, S) return { mask = function (i, j)
    if i < j then return 0 end
    if i - j < W or j < S then return 1 end
    return 0
  end } end },
  { "of decays", function (W, S) return { mask = function (i, j, p)
    if i < j then return 0 end
    if i - j < W or j < S then
      return p.b[j] * exp(p.g_cumsum[i] - p.g_cumsum[j])
    end
    return 0
  end } end },
  { "of keys' decays", function (W, S) return {
    input = { g = "t k : log_decay" }, mask = function (i, j, p)
    if i < j then return 0 end
    if j < S then return 1 end
    if i - j < W then return exp(p.g_cumsum[i] - p.g_cumsum[j]) end
    return 0
  end } end },
  { "without the first", function (W, S) return { mask = function (i, j, p)
    if i < j or j < S then return 0 end
    if i - j < W then return p.b[j] end
    return 0
  end } end },
  { "of two kinds", function (W, S) return { mask = function (i, j, p)
    if i < j then return 0 end
    if j < S then return j < 2 and p.b[j] or p.a[i] end
    if i - j < W then return p.b[j] * exp(p.g_cumsum[i] - p.g_cumsum[j]) end
    return 0
  end } end },
  { "coupled", function (W, S) return { mask = function (i, j, p)
    if i < j then return 0 end
    if j < S then return p.w[j] * p.a[i] end
    if i - j < W then return p.w[j] / (i - j + 1) end
    return 0
  end } end },
  { "pairs", function (W, S) return { mode = "quadratic",
                                     mask = function (i, j, p)
    if i < j then return 0 end
    if i - j < W or j < S then return p.w[j] end
    return 0
  end } end },
  { "softmax", function (W, S) return { normalise = "softmax",
                                       mask = function (i, j)
    if i < j then return 0 end
    if i - j < W or j < S then return 1 end
    return 0
  end } end },
  { "softmax of decays", function (W, S) return { normalise = "softmax",
                                                 mask = function (i, j, p)
    if i < j then return 0 end
    if j < S then return p.w[j] ^ 2 end
    if i - j < W then return exp(p.g_cumsum[i] - p.g_cumsum[j]) end
    return 0
  end } end },
}

local sizes <const> = { { 1, 3 }, { 5, 2 }, { 17, 4 }, { 20, 40 }, { 90, 3 },
                        { 3, 90 }, { 40, 0 } }

-- 5e-5: exponents of some tens are rounded.
local function holds(name, v, given)
  given.K, given.V = 4, 3
  local e = v:check(given)
  check(name, e.worst <= 5e-5, e)
end

local function parts(name, v, T)
  local x = v:random { B = 1, H = 2, T = T, K = 4, V = 3, seed = T }
  local want, state, at = {}, {}, 1
  for n, t in pairs(x) do want[n] = t:to "float64" end
  local y, worst = v:reference(want), 0
  while at <= T do
    local n = math.min(T - at + 1, at % 7 + 1)
    local part, z = { initial_state = state }, nil
    for input, t in pairs(x) do part[input] = t:narrow(2, at, n) end
    z, state = v:forward(part)
    worst = math.max(worst, (z:to "float64" - y:narrow(2, at, n)):maxabs())
    at = at + n
  end
  check(name .. " in parts", worst <= 5e-5 * y:maxabs(), worst)
end

for f, form in ipairs(forms) do
  for s, size in ipairs(sizes) do
    local W, S = size[1], size[2]
    local def = form[2](W, S)
    def.name = "sinks"
    local name = ("%s, a window of %d and the first %d"):format(form[1], W, S)
    local ok, v = pcall(flin.variant, def)
    check(name .. " compiles", ok, v)
    for n, T in ipairs(ok and { 1, 33, 61 } or {}) do
      if (f + s + n) % 2 == 0 then
        holds(("%s, %d tokens"):format(name, T), v, { B = 2, H = 1, T = T })
        parts(("%s, %d tokens"):format(name, T), v, T)
      end
    end
    if ok and (f + s) % 3 == 0 then     -- each sequence has its own
      holds(name .. ", packed", v, { H = 1, T = 60,
                                     cu_seqlens = { 0, 1, 1, 20, 60 } })
    end
  end
end

-- However the condition is written, the state is read from its own token on,
-- and rings are as long as the window.
for _, near in ipairs { function (i, j) return i - j < 256 or j < 4 end,
                        function (i, j) return j < 4 or i - j < 256 end } do
  local v = flin.variant { name = "sinks", mask = function (i, j, p)
    if i < j then return 0 end
    if near(i, j) then return exp(p.g_cumsum[i] - p.g_cumsum[j]) end
    return 0
  end }
  check("rings of the window", tostring(v):find("*256 ==", 1, true), v)
  check("pairs", tostring(v):find("within 256 and with the first 4", 1, true),
        v)
  local plan = v:plan { K = 128, V = 128, B = 1, T = 16384, H = 16,
                        machine = "h200" }
  check("by pairs", plan.mode == "quadratic", plan.text)
end

-- As long as another on the CPU: bands of 8 times the width took 8 times as
-- long.
do
  local function seconds(W)
    local v = flin.variant { name = "sinks", mask = function (i, j, p)
      if i < j then return 0 end
      if j < 4 then return p.b[j] end
      if i - j < W then return exp(p.g_cumsum[i] - p.g_cumsum[j]) end
      return 0
    end }
    check("a scan over the first", tostring(v):find("one over the first", 1,
                                                    true), v)
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

do
  local v = flin.variant(forms[8][2](256, 4))
  check("what it keeps", tostring(v):find("keeps the first 4 and the last 256",
                                          1, true), v)
end

count.finish()
