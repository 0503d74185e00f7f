-- The user's own function, run on numbers, is the truth: traps that Lua
-- cannot intercept are found where a mask or a step is defined, no good one is
-- refused, and v:reference is that function.
local flin = require "flin"
local exp, dot, outer = flin.exp, flin.dot, flin.outer
local expect = require("support.count").expect
local count = require "support.count"

local seed = 7
local function random(n)
  seed = (seed * 1103515245 + 12345) & 0x7fffffff
  return (seed >> 8) % n + 1
end

-- From 24 to a million, small ones as often as large ones.
local function trap_at()
  return math.floor(24 * math.exp(random(10000) / 10000 * math.log(1e6 / 24)))
end

local function refused(what, n, def)
  local ok, why = pcall(flin.variant, def)
  why = tostring(why)
  expect(not ok and (why:find("not what its trace says", 1, true)
                     or why:find("does not depend on it", 1, true)
                     or why:find("nothing reads the comparison", 1, true)),
         "%s at %d: %s", what, n, ok and "accepted" or why)
end

-- ---- masks: conditions that a trace takes for false ----

local bases <const> = {
  function (i, j, p) return exp(p.g_cumsum[i] - p.g_cumsum[j]) end,
  function (i, j, p) return p.b[j] * exp(p.g_cumsum[i] - p.g_cumsum[j]) end,
  function (i, j, p) return exp(-0.01 * (i - j)) end,
  function (i, j, p) return p.a[i] * p.b[j] end,
  function () return 1 end,
}

local function only(key, value)
  return { [key] = value }
end

local function weights(n)
  local w = {}
  for k = 1, math.min(n, 20000) do w[k] = 0 end
  w[#w] = 1
  return w
end

local mask_traps <const> = {
  function (n) return function (i) return i == n end end,
  function (n) return function (_, j) return j == n end end,
  function (n) return function (i, j) return i - j == n end end,
  function (n) return function (i, j) return i + j == n end end,
  function (n) return function (i) return 2 * i == 2 * n end end,
  function (n) return function (_, j) return j + 3 == n end end,
  function (n) return function (i, j) return i == n or j == n + 5 end end,
  function (n) local w = only(n, true)
    return function (_, j) return w[j] end end,
  function (n) local w = only(n, true)
    return function (i, j) return w[i - j] end end,
  function (n) local w = weights(n)
    return function (i) return w[i] == 1 end end,
  function (n) local half = n // 2
    return function (i) return i == half * 2 end end,
  function (n) local o = { at = { n } }
    return function (i) return i == o.at[1] end end,
  function (n) return function (i, j) return i == n and j < 10 end end,
  function (n) return function (i, _, p) return p.a[i] == n end end,
  function (n) return function (_, j, p) return p.a[j] + 1 == n end end,
  function (n) return function (i) return rawequal(i, n) end end,
  function (n) return function (i, j) return i ~= j and i == n end end,
  function (n) local s = tostring(n)
    return function (i) return tostring(i) == s end end,
  function (n) local function is(x) return x == n end
    return function (i) return is(i) end end,
}

for c = 1, 200 do
  local n, which = trap_at(), (c - 1) % #mask_traps + 1
  local base, trap = bases[random(#bases)], mask_traps[which](n)
  refused("mask trap " .. which, n, { mask = function (i, j, p)
    if i < j then return 0 end
    local w = base(i, j, p)
    if trap(i, j, p) then return w + 1 end
    return w
  end })
end

-- ---- steps ----

local step_traps <const> = {
  function (n) return function (x) return x.a == n end end,
  function (n) return function (x) return n == x.b end end,
  function (n) return function (x) return not (x.a ~= n) end end,
  function (n) return function (x) return x.a + x.b == n end end,
  function (n) return function (x) return 2 * x.a == 2 * n end end,
  function (n) return function (x) return x.a == 3 and x.b == n end end,
  function (n) return function (_, s) return s.n + 1 == n end end,
  function (n) local w = only(n, true)
    return function (x) return w[x.a] end end,
  function (n) local w = only(n, true)
    return function (_, s) return w[s.n] end end,
  function (n) return function (x) return x.k == n end end,
  function (n) return function (x) return flin.sum(x.k) == n end end,
  function (n) return function (x) return flin.at(x.k, "k", 2) == n end end,
  function (n) return function (x) return rawequal(x.a, n) end end,
  function (n) return function (x) return flin.gt(x.a, n) end end,
  function (n) return function (x) return flin.prev(x.a) == n end end,
}

for c = 1, 90 do
  local n, which = trap_at(), (c - 1) % #step_traps + 1
  local trap = step_traps[which](n)
  refused("step trap " .. which, n, {
    input = { q = "t k", k = "t k", v = "t v", a = "t", b = "t" },
    state = { S = "k v", n = "" },
    step = function (x, s)
      local S = exp(-x.a^2) * s.S + outer(x.k, x.b * x.v)
      if trap(x, s) then S = outer(x.k, x.v) end
      return { S = S, n = s.n + 1 }, dot(x.q, S)
    end,
  })
end

-- ---- the same as users write it, with numbers in the text ----

local spelled <const> = {
  "i == %d", "j == %d", "i - j == %d", "i + j == %d", "%d == i",
  "W[j] == 1", "i == %d and j == 7", "j == %d and i > 5", "not (i ~= %d)",
  "p.a[i] == %d", "i * 3 == 3 * %d", "j - 1 == %d", "(i - j) / 2 == %d",
  "-i == -%d", "i^2 == %d^2", "({ [%d] = true })[i]",
}
local spelled_steps <const> = { "x.a == %d", "x.a ~= %d", "s.n == %d",
                                "W[x.a] == 1", "x.a / 2 == %d" }

local path = os.tmpname()
do
  local f <close> = assert(io.open(path, "w"))
  f:write [[
local flin = require "flin"
local accepted = 0
local function try(what, def)
  if pcall(flin.variant, def) then
    accepted = accepted + 1
    print("accepted: " .. what)
  end
end
]]
  for c = 1, 110 do
    local steps = c > 100
    local n, list = trap_at(), steps and spelled_steps or spelled
    local cond = list[c % #list + 1]:gsub("%%d", tostring(n))
    f:write(("do local W = { [%d] = 1 } try(%q, { "):format(n, cond))
    f:write(steps and ([[
input = { k = "t k", v = "t v", a = "t" }, state = { S = "k v", n = "" },
step = function (x, s)
  local S = s.S + flin.outer(x.k, x.a * x.v)
  if %s then S = 2 * S end
  return { S = S, n = s.n + 1 }, flin.dot(x.k, S)
end }) end
]]):format(cond) or ([[
mask = function (i, j, p)
  if i < j then return 0 end
  local w = flin.exp(p.a_cumsum[i] - p.a_cumsum[j])
  if %s then return w + 1 end
  return w
end }) end
]]):format(cond))
  end
  f:write "print(accepted .. ' accepted')\n"
end
do
  local p <close> = assert(io.popen(("'%s' '%s' 2>&1"):format(arg[-1], path)))
  local out = p:read "a"
  expect(out:find("^0 accepted"), "spelled out: %s", out)
end
os.remove(path)

-- ---- what is good ----

local W <const> = { 0.5, 0.25 }
local good <const> = {
  { mask = function (i, j, p)           -- known while it is traced
    local n = 2
    if n == 2 and i < j then return 0 end
    for d = 1, #W do
      if i - j <= d - 1 then return W[d] * p.a[j] end
    end
    return exp(p.g_cumsum[i] - p.g_cumsum[j])
  end },
  { mask = function (i, j, p)
    if i < j then return 0 end
    return flin.where(flin.eq(i, 30), p.a[i], p.b[j]) + (i - j)^2 * (i - j)^2
  end },
  { input = { q = "t k", k = "t k", v = "t v", reset = "t" },
    state = { S = "k v" },
    step = function (x, s)
      local keep = flin.where(flin.eq(x.reset, 1), 0, 1)
      local S = keep * s.S + outer(x.k, x.v)
      return { S = S }, dot(x.q, S) * (1 - flin.lt(x.reset, 0))
    end },
  { input = { k = "t k", v = "t v", w = "t" }, state = { S = "k v" },
    step = function (x, s)              -- a number or a value
      local function scaled(w, y) return w == 1 and y or w and w * y end
      local S = s.S + outer(scaled(1, x.k), scaled(x.w, x.v))
      return { S = S }, dot(x.k, S)
    end },
}
for n, def in ipairs(good) do
  local ok, v = pcall(flin.variant, def)
  expect(ok, "good %d: %s", n, v)
  if ok then
    local e = v:check { T = 40, K = 4, V = 4 }
    expect(e.worst < 1e-5, "good %d: %s", n, e)
  end
end

-- ---- v:reference runs the function ----

local function apart(a, b) return (a - b):maxabs() / (1 + b:maxabs()) end

local function whole_turns(x)
  x = x:reshape(x.count):totable()
  for _, d in ipairs(x) do
    d = d / (2 * math.pi)
    if math.abs(d - math.floor(d + 0.5)) > 1e-6 then return false end
  end
  return true
end

local function same_as_trace(name, v, o)
  local x = v:random(o)
  for key, t in pairs(x) do x[key] = t:to "float64" end
  local y, left = v:reference(x)
  x.backend = "interpreter"
  local traced, other = v:forward(x)
  expect(apart(y, traced) < 1e-9, "%s: y %g", name, apart(y, traced))
  for key, s in pairs(left) do
    local e = apart(s, other[key])
    expect(e < 1e-6 or whole_turns(s - other[key]),   -- states are float32
           "%s: %s %g", name, key, e)
  end
end
for _, name in ipairs(flin.stdlib_names) do
  same_as_trace(name, flin.stdlib[name],
                { B = 2, T = 9, H = 1, HV = 2, K = 4, V = 3, seed = 3 })
end

-- One entry of a long list is another than the rest.
for _, length in ipairs { 30, 100, 1000, 20000 } do
  for _, first in ipairs { 0, 1 } do
    local list, odd = {}, first + random(length) - 1
    for n = first, length do list[n] = n == odd and 2 or 1 end
    refused("list[j]", odd, { mask = function (i, j)
      return i < j and 0 or list[j] or 1
    end })
    refused("list[i - j]", odd, { mask = function (i, j)
      return i < j and 0 or list[i - j] or 1
    end })
  end
end

-- A function that changes its mind: the truth is what it says now.
do
  local factor = 1
  local v = flin.variant {
    input = { k = "t k", v = "t v" }, state = { S = "k v" },
    step = function (x, s)
      local S = s.S + factor * outer(x.k, x.v)
      return { S = S }, dot(x.k, S)
    end,
  }
  factor = 2
  local x = v:random { T = 5, K = 2, V = 2 }
  for key, t in pairs(x) do x[key] = t:to "float64" end
  local now = v:reference(x)
  x.backend = "interpreter"
  expect(apart(now, v:forward(x)) > 0.1, "the step as it is now")
  x.backend = nil
  x.dy = now
  local function says(of, inputs)
    local ok, why = pcall(of.reference_backward, of, inputs)
    expect(not ok and tostring(why):find("is not what its trace says", 1, true),
           "a gradient of what is not the trace: %s", why)
  end
  says(v, x)
  local ok, why = pcall(v.check, v, { T = 5, K = 2, V = 2 })
  expect(not ok and tostring(why):find("is not what its trace says", 1, true),
         "check: %s", why)
  local far = 1
  local m = flin.variant { mask = function (i, j)
    if i < j then return 0 end
    return i - j < 3 and far or 0.5
  end }
  far = 2
  x = m:random { T = 5, K = 2, V = 2 }
  for key, t in pairs(x) do x[key] = t:to "float64" end
  now = m:reference(x)
  x.backend = "interpreter"
  expect(apart(now, m:forward(x)) > 0.1, "the mask as it is now")
  x.backend = nil
  x.dy = now
  says(m, x)
  expect(m:check({ T = 30, K = 2, V = 2 }).worst > 0.1,
         "check of the mask as it is now")
end

do                                      -- nothing to be run, run on numbers
  local near = flin.variant { mask = function (i, j)
    if i < j then return 0 end
    return i - j < 3 and 1 or 0.5
  end }
  for _, v in ipairs { flin.stdlib.gla, flin.stdlib.deltanet, near } do
    for _, shape in ipairs { { B = 0, T = 4 }, { B = 1, T = 0 } } do
      local x = v:random { B = shape.B, T = shape.T, H = 2, K = 4, V = 4 }
      local y = v:reference(x)
      expect(y.count == 0, "%s: no tokens, no y", v.name)
      x.dy = flin.zeros(shape.B, shape.T, 2, 4)
      expect(v:reference_backward(x).q.count == 0, "%s: nor gradients",
             v.name)
    end
  end
end

count.finish()
