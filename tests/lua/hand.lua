-- Variants written by hand, as somebody tries them, at sizes that nobody
-- tunes for: keys of 48 beside values of 80, one head, one token, one more
-- than a chunk, shared heads, sequences that are empty. Everything that v:check
-- looks at; then gates of 0, -1e9 and -inf by tokens; parts of a sequence, and
-- tokens that are taken back. Arguments are a backend, "cuda" say, a type,
-- and a part of all: 0/8 is every eighth from the first on.
local flin = require "flin"
local count = require "support.count"
local part = require "support.part"
local with = require "support.with"
local exp, dot, outer, where = flin.exp, flin.dot, flin.outer, flin.where
local at, prev, rename = flin.at, flin.prev, flin.rename
local eq, lt, sigmoid, tanh = flin.eq, flin.lt, flin.sigmoid, flin.tanh
local inf <const> = math.huge
local expect <const> = count.expect

local backend <const>, dtype <const> = arg[1] or "cpu", arg[2] or "float32"
local narrow <const> = dtype ~= "float32"
local mine <const>, parts <const> = (arg[3] or "0/1"):match "(%d+)/(%d+)"

-- Is the n-th of a list's in the part that is asked for?
local function is_mine(n)
  return n % parts == tonumber(mine)
end

local SIZES <const> = {
  { B = 1, T = 65, H = 1, K = 48, V = 80 },
  { B = 2, T = 1, H = 3, K = 7, V = 1 },
  { B = 1, T = 130, H = 2, HV = 4, K = 16, V = 9,
    cu_seqlens = { 0, 0, 1, 66, 66, 130, 130 } },
}

local function q(more)
  return with({ q = "t k", k = "t k", v = "t v" }, more)
end
local function unit(more)
  return with({ q = "t k", k = "t k : unit_norm", v = "t v", b = "t : unit" },
              more)
end

local S <const> = { S = "k v" }
local definitions <const> = {
  longhorn = { unit(), S, function (x, s)
    local e = x.b / (1 + x.b * dot(x.k, x.k))
    local S = s.S + outer(e * x.k, x.v - dot(x.k, s.S))
    return { S = S }, dot(x.q, S)
  end },
  normalised = { q { f = "t : log_decay", i = "t" }, { S = "k v", n = "k" },
    function (x, s)
      local w = exp(flin.min(x.i, 3))
      local S = exp(x.f) * s.S + outer(w * x.k, x.v)
      local n = exp(x.f) * s.n + w * x.k
      return { S = S, n = n },
             dot(x.q, S) / flin.max(flin.abs(dot(x.q, n)), 1)
    end },
  two_speeds = { unit { g = "t : log_decay", m = "t" },
    { F = "k v", S = "k v" }, function (x, s)
      local F = exp(x.g) * s.F
      F = F + outer(x.k, x.v - dot(x.k, F))
      local S = s.S + outer(x.b * x.k, dot(x.k, F) - dot(x.k, s.S))
      return { F = F, S = S }, { y = dot(x.q, S),
                                 fast = sigmoid(x.m) * dot(x.q, F) }
    end },
  average = { { v = "t v" }, { s = "v", n = "" }, function (x, s)
    local n, sum = s.n + 1, s.s + x.v
    return { s = sum, n = n }, sum / n
  end },
  every_eighth = { q(), { S = "k v", n = "" }, function (x, s)
    local n = s.n + 1
    local turn = eq(n - 8 * flin.floor(n / 8), 0)
    local S = where(turn, 0.5, 1) * s.S + outer(x.k, x.v)
    return { S = S, n = n }, dot(x.q, S)
  end },
  complex = { q { a = "k : log_decay", th = "k" }, { R = "k v", I = "k v" },
    function (x, s)
      local m = exp(x.a)
      local c, d = m * flin.cos(x.th), m * flin.sin(x.th)
      local R = c * s.R - d * s.I + outer(x.k, x.v)
      return { R = R, I = d * s.R + c * s.I }, dot(x.q, R)
    end },
  moving_average = { { u = "t", a = "t : unit" }, { h = "" }, function (x, s)
    local h = x.a * s.h + (1 - x.a) * x.u
    return { h = h }, h
  end },
  before_and_after = { unit(), S, function (x, s)
    local S = s.S + outer(x.b * x.k, x.v - dot(x.k, s.S))
    local old, new = dot(x.q, s.S), dot(x.q, S)
    return { S = S }, { y = old, after = new, both = dot(old, new) }
  end },
  three_reflections = {
    { q = "t k", k = "t n k : unit_norm", v = "t n v", b = "t n : unit",
      g = "t : log_decay" }, S, function (x, s)
      local S = exp(x.g) * s.S
      for j = 1, 3 do
        local k = at(x.k, "n", j)
        S = S + outer(2 * at(x.b, "n", j) * k, at(x.v, "n", j) - dot(k, S))
      end
      return { S = S }, dot(x.q, S)
    end, { n = 3 } },
  two_before = { q { w = "k" }, S, function (x, s)
    local k = x.k + 0.5 * prev(x.k) + x.w * prev(prev(x.k))
    local S = 0.95 * s.S + outer(k, x.v)
    return { S = S }, dot(x.q, S)
  end },
  velocity = { unit { m = "t : unit" }, { S = "k v", M = "k v" },
    function (x, s)
      local M = x.m * s.M + outer(x.b * x.k, x.v - dot(x.k, s.S))
      local S = s.S + M
      return { S = S, M = M }, dot(x.q, S)
    end },
  three_axes = { q { c = "t r", p = "t r", g = "t r : log_decay" },
    { S = "k r v" }, function (x, s)
      local S = exp(x.g) * s.S + outer(outer(x.k, x.c), x.v)
      return { S = S }, dot(outer(x.q, x.p), S)
    end, { r = 3 } },
  clipped = { q { g = "t : log_decay" }, S, function (x, s)
    local S = exp(x.g) * s.S + outer(x.k, x.v)
    local y = 0.1 * dot(x.q, S)
    return { S = S }, where(lt(flin.abs(y), 1), y, flin.sign(y))
  end },
  roots = { { q = "t k : positive", k = "t k : positive", v = "t v",
              p = "t : positive" }, S, function (x, s)
    local S = 0.9 * s.S + outer(x.k ^ 0.5, x.v)
    return { S = S }, dot(x.q ^ 1.5, S) / (1 + x.p) ^ 2
  end },
  recurrent_unit = { { u = "t d", r = "t d", i = "t d", L = "d" }, { h = "d" },
    function (x, s)
      local a = exp(-8 * flin.softplus(x.L) * sigmoid(x.r))
      local h = a * s.h + flin.sqrt(1 - a * a + 1e-6) * (sigmoid(x.i) * x.u)
      return { h = h }, h
    end },
  swapped_names = { { S = "t k", k = "t k", y = "t v" }, { q = "k v" },
    function (x, s)
      local S = 0.9 * s.q + outer(x.k, x.y)
      return { q = S }, dot(x.S, S)
    end },
  no_state = { q(), nil, function (x) return {}, dot(x.q, x.k) * x.v end },
  unread = { q(), { S = "k v", n = "" }, function (x, s)
    local S = 0.9 * s.S + outer(x.k, x.v)
    return { S = S, n = s.n + 1 }, dot(x.q, S)
  end },
  frozen = { { q = "t k", v = "t v" }, S, function (x, s)
    return { S = s.S }, dot(x.q, s.S) + x.v
  end },
  constant = { { c = "v", v = "t v" }, { s = "v" }, function (x, s)
    return { s = 0.5 * s.s + x.v }, x.c
  end },
  counted = { q(), { S = "k v", n = "" }, function (x, s)
    local n = s.n + 1
    local S = where(eq(n, 5), 0, s.S) + outer(x.k, x.v)
    return { S = S, n = n }, dot(x.q, S)
  end },
  least_squares = { { q = "t k", k = "t k : unit_norm", v = "t v" },
    { P = "k d", S = "k v" }, function (x, s)
      local twin = rename(x.k, "k", "d")
      local S = s.S + 0.1 * outer(dot(s.P, twin, "d"), x.v - dot(x.k, s.S))
      return { P = 0.9 * s.P + outer(x.k, twin), S = S }, dot(x.q, S)
    end },
  by_value = { unit { g = "t v : log_decay" }, S, function (x, s)
    local S = exp(x.g) * s.S
    S = S + outer(x.b * x.k, x.v - dot(x.k, S))
    return { S = S }, dot(x.q, S)
  end },
  of_any_sign = { q { a = "t k" }, S, function (x, s)
    local S = tanh(x.a) * s.S + outer(x.k, x.v)
    return { S = S }, dot(x.q, S)
  end },
  all_of_it = { q { a = "t : unit", p = "t : positive" }, S, function (x, s)
    local S = sigmoid(x.a) * s.S
            + outer(tanh(0.1 * x.k), flin.softplus(x.v))
    return { S = S }, flin.sqrt(x.p) * flin.rsqrt(1 + x.p) * dot(x.q, S)
  end },
  erased_by_zero = { q(), S, function (x, s)
    local S = 0 * s.S + outer(x.k, x.v)
    return { S = S }, dot(x.q, S)
  end },
  turned_over = { q(), S, function (x, s)
    local S = outer(x.k, x.v) - 0.9 * s.S
    return { S = S }, dot(x.q, S)
  end },
}

-- ---- v:check ----

local function sizes_of(v, given)
  local sizes = {}
  for name, size in pairs(given) do
    local axis = #name == 1 and name ~= "B" and name ~= "T" and name ~= "H"
    if not axis or v.axes[name:lower()] ~= nil then sizes[name] = size end
  end
  if v.axes.d ~= nil then sizes.D = given.K end
  return sizes
end

local function limit_of(what)
  local gradient = what:find "^d_"
  if narrow then return gradient and 2e-2 or 6e-3 end
  return gradient and 1e-4 or 1e-5
end

local function check(v, i)
  local options = with(sizes_of(v, SIZES[i]),
                       { backend = backend, dtype = dtype, seed = i })
  local ok, found = pcall(v.check, v, options)
  expect(ok, "%s, %d: %s", v.name, i, found)
  for what, off in pairs(ok and found or {}) do
    if type(off) == "number" and what ~= "worst" then
      expect(off <= limit_of(what), "%s, %d: %s is off by %.2e", v.name, i,
             what, off)
    end
  end
end

-- ---- parts, and tokens taken back ----

local function close(name, got, wanted, most)
  if not flin.is_tensor(wanted) then
    for one, t in pairs(wanted) do
      close(name .. "." .. one, got[one], t, most)
    end
    return
  end
  local a, b = got:to "float64", wanted:to "float64"
  local off = (a - b):maxabs() / math.max(b:maxabs(), 1e-3)
  expect(off <= most, "%s is off by %.2e", name, off)
end

local function check_parts(v)
  local sizes = sizes_of(v, SIZES[1])
  local T, cut = sizes.T, 23
  local x = v:random(sizes)
  local _, ends = v:forward(x)
  local from = {}
  for name, t in pairs(ends) do
    from[name] = (flin.randn(table.unpack(t.shape)) * 0.5):to(t.dtype)
  end
  local here = { backend = backend }
  local y, last = v:reference(with(x, { initial_state = from }))
  local _, middle = v:forward(with(with(part(v, x, 1, cut), here),
                                   { initial_state = from }))
  local y2, last2 = v:forward(with(with(part(v, x, cut + 1, T - cut), here),
                                   { initial_state = middle }))
  local function tail(t)
    if flin.is_tensor(t) then return t:narrow(2, cut + 1, T - cut) end
    local of = {}
    for name, one in pairs(t) do of[name] = tail(one) end
    return of
  end
  close(v.name .. ", two parts: y", y2, tail(y), 5e-5)
  close(v.name .. ", two parts: states", last2, last, 5e-5)
  local guess = with(with(part(v, x, 1, 3), here), { state = from })
  local _, kept = v:verify(guess)
  local _, third = v:reference(with(part(v, x, 1, 3),
                                    { initial_state = from }))
  for name, t in pairs(kept) do
    close(v.name .. ", verified: " .. name,
          t:narrow(2, 3, 1):reshape(third[name].shape), third[name], 5e-5)
  end
end

local names = {}
for name in pairs(definitions) do names[#names + 1] = name end
table.sort(names)
for n, name in ipairs(names) do
  local d = definitions[name]
  local v = flin.variant { name = name, input = d[1], state = d[2],
                           step = d[3], axes = d[4] }
  local steps = narrow and name == "clipped"    -- rounding takes the other side
  for i = 1, (steps or not is_mine(n)) and 0 or #SIZES do check(v, i) end
  if d[2] and not narrow and is_mine(n) then check_parts(v) end
end

-- ---- gates ----

-- g of the tokens that `every` divides, and of a third of its keys, is `value`.
local function with_gates(g, every, value)
  local t = g:totable()
  for b = 1, #t do
    for i = every, #t[b], every do
      for h = 1, #t[b][i] do
        local of = t[b][i][h]
        if type(of) ~= "table" then t[b][i][h] = value end
        for k = 1, type(of) == "table" and #of or 0, 3 do of[k] = value end
      end
    end
  end
  return flin.tensor(t)
end

local function check_gates(v, every, value)
  local x = v:random { B = 1, T = 65, H = 1, K = 48, V = 80 }
  x.g = with_gates(x.g, every, value)
  local name = ("%s, gates of %g each %d"):format(v.name, value, every)
  local y, ends = v:reference(x)
  local y2, ends2 = v:forward(with(x, { backend = backend }))
  close(name .. ": y", y2, y, 2e-5)
  close(name .. ": states", ends2, ends, 2e-5)
  local wide, back = { dy = flin.randn(table.unpack(y.shape)) }, {}
  for input, t in pairs(x) do wide[input] = t:to "float64" end
  for one, t in pairs(with(x, { dy = wide.dy })) do back[one] = t end
  wide.dy, back.backend = wide.dy:to "float64", backend
  local got = v:backward(back)
  for input, d in pairs(v:backward(wide)) do
    close(name .. ": d_" .. input, got[input], d, 2e-4)
  end
end

if not narrow then
  for _, name in ipairs { "simple_gla", "gla", "gated_deltanet", "kda" } do
    for n, value in ipairs { 0, -inf, -1e9, -1e38, -104, -87.5 } do
      for _, every in ipairs { 1, 17 } do
        if is_mine(n) then check_gates(flin.stdlib[name], every, value) end
      end
    end
  end
end

count.finish()
