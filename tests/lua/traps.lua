-- Steps with traps that Lua tells nobody of, of every kind that we could think
-- of: none is taken for what its trace says.
local flin = require "flin"
local exp, dot, outer = flin.exp, flin.dot, flin.outer
local expect = require("support.count").expect
local count = require "support.count"

local seed = 11
local function random(n)
  seed = (seed * 1103515245 + 12345) & 0x7fffffff
  return (seed >> 8) % n + 1
end

-- From 24 to a million, small ones as often as large ones.
local function trap_at()
  return math.floor(24 * math.exp(random(10000) / 10000 * math.log(1e6 / 24)))
end

local function is(n) return function (y) return y == n end end
local function is_not(n) return function (y) return y ~= n end end
local function only(key, value) return { [key] = value } end
local Reader <const> = {}
Reader.__index = Reader
function Reader:sees(y) return y == self.limit end
local settings = { reset = { token = {} } }

-- Each gives for a number the condition on x and s that a trace does not see.
local conditions <const> = {
  -- equalities, as they are written
  ["a == n"] = function (n) return function (x) return x.a == n end end,
  ["a ~= -n"] = function (n) return function (x) return not (x.a ~= -n) end end,
  ["a == n / 7"] = function (n) return function (x) return x.a == n / 7 end end,
  ["a - n == 0"] = function (n) return function (x) return x.a - n == 0 end end,
  ["a / n == 1"] = function (n) return function (x) return x.a / n == 1 end end,
  ["(a - n)^2 == 0"] = function (n)
    return function (x) return (x.a - n)^2 == 0 end end,
  ["-a == n"] = function (n) return function (x) return -x.a == n end end,
  ["abs"] = function (n) return function (x) return flin.abs(x.a) == n end end,
  ["max == n"] = function (n)
    return function (x) return flin.max(x.a, n) == n end end,
  ["where == 1"] = function (n)
    return function (x) return flin.where(flin.eq(x.a, n), 1, 0) == 1 end end,
  ["a * 0 == 0"] = function () return function (x) return x.a * 0 == 0 end end,
  ["a + b == n"] = function (n)
    return function (x) return x.a + 2 * x.b == n end end,
  ["not a number"] = function () return function (x) return x.a ~= x.a end end,
  ["no number of s"] = function ()
    return function (_, s) return s.n ~= s.n end end,
  ["infinite"] = function ()
    return function (x) return x.a == math.huge end end,
  ["minus infinity"] = function ()
    return function (x) return x.a == -math.huge end end,
  ["1e17"] = function (n) return function (x) return x.a == n * 1e15 end end,
  ["1e-9"] = function (n) return function (x) return x.a == n * 1e-12 end end,
  ["a count"] = function (n) return function (_, s) return s.n == n end end,
  ["a count behind"] = function (n)
    return function (_, s) return s.n + 3 == n end end,
  ["a whole count"] = function (n)
    return function (_, s) return 2 * (s.n - 1) == 2 * n end end,
  ["two tokens ago"] = function (n)
    return function (x) return flin.prev(flin.prev(x.a)) == n end end,
  ["a sum"] = function (n)
    return function (x) return flin.sum(x.k * x.k) == n * n end end,
  ["of the state"] = function (n)
    return function (_, s) return flin.sum(s.S) == n end end,
  ["a mean"] = function (n) return function (x) return flin.mean(x.v) == n end
  end,
  ["a dot"] = function (n) return function (x) return dot(x.q, x.k) == n end
  end,
  -- several together
  ["two of two"] = function (n)
    return function (x) return x.a == n and x.b == n // 2 end end,
  ["one of two"] = function (n)
    return function (x) return x.a == 1 - n or x.b == n + 0.5 end end,
  ["three"] = function (n)
    return function (x, s) return x.a == n and x.b == 17 and s.n == 3 end end,
  ["four"] = function (n)
    return function (x, s)
      return x.a == n and x.b == n + 17 and s.n == 40 and flin.prev(x.b) == 9
    end
  end,
  ["nested"] = function (n)
    return function (x, s)
      if x.a ~= n then return false end
      local far = s.n == n - 1
      if not far then return false end
      return x.b == 5
    end
  end,
  ["both or none"] = function (n)
    return function (x) return (x.a == n) == (x.b ~= 77) end end,
  -- what is compared is not in the text
  ["computed"] = function (n)
    local third = n // 3
    return function (x) return x.a == third * 3 + n % 3 + 0.25 end end,
  ["product of three"] = function (n)
    local a, b, c = n, 3, 7
    return function (x) return x.a == a * b * c end end,
  ["in letters"] = function (n)
    local s = "at_" .. n
    return function (x) return x.a == tonumber(s:match "%d+") end end,
  ["a length"] = function (n)
    local s = ("x"):rep(n % 5000 + 24)
    return function (x) return x.a == #s end end,
  ["a name made"] = function (n)
    settings.reset.token.at = n + 0.5
    return function (x) return x.a == settings["re" .. "set"].token["a" .. "t"]
    end
  end,
  ["deep"] = function (n)
    local t = { n }
    for _ = 1, 9 do t = { t } end
    return function (x)
      local u = t
      for _ = 1, 9 do u = u[1] end
      return x.a == u[1]
    end
  end,
  ["by __index"] = function (n)
    local t = setmetatable({}, { __index = function () return n + 0.5 end })
    return function (x) return x.a == t.limit end end,
  ["by __call"] = function (n)
    local t = setmetatable({}, { __call = function (_, y) return y == n end })
    return function (x) return t(x.a) end end,
  ["a method"] = function (n)
    local r = setmetatable({ limit = n }, Reader)
    return function (x) return r:sees(x.a) end end,
  ["returned"] = function (n)
    local function limit() return n * 2 + 0.25 end
    return function (x) return x.a == limit() end end,
  ["one of many"] = function (n)
    local t = {}
    for k = 1, 200 do t[k] = 1000 * k + n + 0.5 end
    return function (x) return x.a == t[150] end end,
  ["a loop's"] = function (n)
    return function (x)
      for k = n, n + 100 do
        if x.a == k + 0.5 then return true end
      end
      return false
    end
  end,
  ["recursion"] = function (n)
    local function find(y, k) return k < 20 and (y == n + k * k
                                                 or find(y, k + 1)) end
    return function (x) return find(x.a, 3) end end,
  ["global"] = function (n)
    trap_limit = n
    return function (x) return x.a == trap_limit end end,
  ["varargs"] = function (n)
    local function any(...)
      for k = 1, select("#", ...) do
        if (select(k, ...)) == n then return true end
      end
    end
    return function (x, s) return any(x.b, s.n, x.a) end end,
  -- tables
  ["w[a]"] = function (n)
    local w = only(n, true)
    return function (x) return w[x.a] end end,
  ["rawget"] = function (n)
    local w = only(n, true)
    return function (x) return rawget(w, x.a) end end,
  ["w[a][b]"] = function (n)
    local w = only(n, only(n + 1, true))
    return function (x) return w[x.a] and w[x.a][x.b] end end,
  ["w[count]"] = function (n)
    local w = only(n, true)
    return function (_, s) return w[s.n + 1] end end,
  ["written and read"] = function (n)
    return function (x)
      local t = { [x.a] = true }
      return t[n]
    end
  end,
  ["next"] = function (n)
    return function (x) return next { [x.a] = 1 } == n end end,
  ["pairs"] = function (n)
    return function (x)
      for _, y in pairs(x) do
        if y == n then return true end
      end
    end
  end,
  ["__index of it"] = function (n)
    local w = setmetatable({}, { __index = function (_, k) return k == n end })
    return function (x) return w[x.a] end end,
  ["true or false"] = function (n)
    local t = { [true] = true }
    return function (x) local y = t return y[x.a == n] end end,
  ["sorted"] = function (n)
    return function (x)
      local t = { x.a, x.b }
      table.sort(t, function (y) return y == n end)
      return t[1] == x.b
    end
  end,
  ["rawequal"] = function (n)
    return function (x) return rawequal(x.a, n) end end,
  -- comparisons that nothing reads
  ["flin.gt"] = function (n) return function (x) return flin.gt(x.a, n) end end,
  ["not flin.eq"] = function (n)
    return function (x) return not flin.eq(x.a, n) end end,
  ["flin.gt == true"] = function (n)
    return function (x) return flin.gt(x.a, n) == true end end,
  ["flin.gt ~= false"] = function (n)
    return function (x) return flin.le(x.a, n) == false end end,
  ["flin.gt == 1"] = function (n)
    return function (x) return flin.gt(x.a, n) == 1 end end,
  ["and of two"] = function (n)
    return function (x) return flin.gt(x.a, n) and flin.lt(x.b, 0) end end,
  -- texts
  ["tostring"] = function (n)
    local s = tostring(n + 0.0)
    return function (x) return tostring(x.a) == s end end,
  ["format"] = function (n)
    local s = ("%g"):format(n)
    return function (x) return ("%s"):format(x.a) == s .. ".0" end end,
  [".."] = function (n)
    return function (x) return x.a .. "" == n .. ".0" end end,
  ["length of text"] = function ()
    return function (x) return #tostring(x.a) < 4 end end,
  ["a pattern"] = function ()
    return function (x) return tostring(x.a):find "^%-%d" end end,
  ["type"] = function ()
    return function (x) return type(x.a) == "number" end end,
  ["math.type"] = function ()
    return function (x) return math.type(x.a) == "float" end end,
  ["tointeger"] = function ()
    return function (x) return math.tointeger(x.a) end end,
  ["tonumber"] = function (n)
    return function (x) return tonumber(x.a) == n end end,
  -- Lua's own functions
  ["math.max"] = function (n)
    return function (x) return math.max(x.a, n) == n end end,
  ["math.floor"] = function (n)
    return function (x) return math.floor(x.a) == n end end,
  ["math.ult"] = function (n)
    return function (x) return math.ult(x.a, n) end end,
  ["select"] = function ()
    return function (x) return select(x.a, false, true) end end,
  ["a %% 2"] = function () return function (x) return x.a % 2 == 0 end end,
  ["a // 2"] = function (n) return function (x) return x.a // 2 == n end end,
  ["a & 1"] = function () return function (x) return x.a & 1 == 0 end end,
  -- errors that are swallowed
  ["pcall of <"] = function (n)
    return function (x)
      local ok, less = pcall(function () return x.a > n end)
      return ok and less
    end
  end,
  ["pcall of <="] = function (n)
    return function (_, s)
      return select(2, pcall(function () return s.n >= n end)) == true
    end
  end,
  ["xpcall"] = function (n)
    return function (x)
      local _, y = xpcall(function () return x.a < -n end,
                          function () return false end)
      return y
    end
  end,
  ["pcall of rep"] = function ()
    return function (x) return (pcall(string.rep, "a", x.a)) end end,
  ["pcall of for"] = function (n)
    return function (x)
      local far = false
      pcall(function () for k = 1, x.a do far = k > n end end)
      return far
    end
  end,
  ["pcall of math"] = function (n)
    return function (x)
      local ok, y = pcall(math.min, x.a, n)
      return ok and y == n
    end
  end,
  ["pcall of char"] = function ()
    return function (x) return (pcall(string.char, x.a)) end end,
  ["thrown"] = function (n)
    return function (x)
      local _, y = pcall(error, x.a)
      return y == n
    end
  end,
  ["a coroutine"] = function (n)
    return function (x)
      return coroutine.wrap(function () return x.a == n + 0.5 end)()
    end
  end,
  ["yielded"] = function (n)
    return function (x)
      local co = coroutine.wrap(function (y)
        while true do y = coroutine.yield(y == n) end
      end)
      return co(x.b) or co(x.a)
    end
  end,
  ["assert"] = function (n)
    return function (x) return not pcall(assert, x.a ~= n) end end,
  -- loops
  ["while"] = function (n)
    return function (x)
      local m = 0
      while x.a == n and m < 3 do m = m + 1 end
      return m > 0
    end
  end,
  ["repeat"] = function (n)
    return function (x)
      local m = 0
      repeat m = m + 1 until x.a ~= n or m > 2
      return m > 1
    end
  end,
  ["until"] = function (n)
    return function (x)
      local y, m = x.a, 0
      repeat y, m = y - 1, m + 1 until y == n or m == 5
      return m < 5
    end
  end,
  ["goto"] = function (n)
    return function (x)
      local m = 0
      ::again::
      m = m + 1
      if x.a == n and m < 4 then goto again end
      return m == 4
    end
  end,
  -- metatables
  ["__lt"] = function (n)
    local t = setmetatable({}, { __lt = function (_, y) return y == n end })
    return function (x) return t < x.a end end,
  ["__concat"] = function (n)
    local t = setmetatable({}, { __concat = function (_, y) return y == n end })
    return function (x) return t .. x.a end end,
  ["__add"] = function (n)
    local t = setmetatable({}, { __add = function (_, y) return y == n end })
    return function (x) return t + x.a end end,
  ["__newindex"] = function (n)
    return function (x)
      local hit
      local t = setmetatable({}, { __newindex = function (_, k, y)
        hit = k == "y" and y == n
      end })
      t.y = x.a
      return hit
    end
  end,
  ["__close"] = function (n)
    return function (x)
      local hit
      do
        local t <close> = setmetatable({}, { __close = function ()
          hit = x.a == n
        end })
      end
      return hit
    end
  end,
  ["__eq"] = function (n)
    local meta = { __eq = function (y, z) return y[1] == z[1] end }
    local t = setmetatable({ n }, meta)
    return function (x) return setmetatable({ x.a }, meta) == t end end,
  -- another function, kept from the call before
  ["seen before"] = function (n)
    local last
    return function (x)
      local hit = last == n
      last = x.a
      return hit
    end
  end,
  ["all seen"] = function ()
    local seen = {}
    return function (x)
      local hit = seen[x.a]
      seen[x.a] = true
      return hit
    end
  end,
  ["the third call"] = function ()
    local calls = 0
    return function () calls = calls + 1 return calls > 2 end
  end,
  ["the n-th call"] = function (n)
    local calls = 0
    return function () calls = calls + 1 return calls == n end
  end,
  ["later calls"] = function (n)
    local calls = 0
    return function () calls = calls + 1 return calls > n + 20000 end
  end,
  ["calls in a table"] = function (n)
    local t = { calls = 0 }
    return function () t.calls = t.calls + 1 return t.calls == n end
  end,
  ["calls in a global"] = function (n)
    trap_calls = 0
    return function () trap_calls = trap_calls + 1 return trap_calls == n end
  end,
  ["turn about"] = function ()
    local on = true
    return function () on = not on return on end
  end,
  ["calls in letters"] = function (n)
    local s = ""
    return function () s = s .. "x" return #s == n end
  end,
  ["calls as a list"] = function (n)
    local t = {}
    return function (x) t[#t + 1] = true return #t == n end
  end,
  ["calls of a coroutine"] = function (n)
    local co = coroutine.wrap(function ()
      for k = 1, math.huge do coroutine.yield(k == n) end
    end)
    return function () return co() end
  end,
  -- chance and the clock
  ["math.random"] = function ()
    return function () return math.random() < 0.5 end end,
  ["seldom"] = function (n)
    return function () return math.random(n * 1000) == 1 end end,
  ["seldom, kept"] = function (n)
    local draw = math.random
    return function () return draw(n * 1000) == 1 end end,
  ["os.time"] = function (n)
    return function () return os.time() % (n * 1000) == 1 end end,
  ["os.clock"] = function (n)
    local clock = os.clock
    return function () return clock() > n end end,
  ["os.date"] = function ()
    return function () return os.date "%H:%M:%S" == "00:00:00" end end,
  ["flin.randn"] = function (n)
    return function () return flin.randn({ 1 })[1] > 4 + 1 / n end end,
}

local NAMES <const> = {}
for name in pairs(conditions) do NAMES[#NAMES + 1] = name end
table.sort(NAMES)

-- What a condition may lead to.
local effects <const> = {
  function (on, x, s)
    local S = exp(-x.a^2) * s.S + outer(x.k, x.b * x.v)
    if on(x, s) then S = outer(x.k, x.v) end
    return { S = S, n = s.n + 1 }, dot(x.q, S)
  end,
  function (on, x, s)
    local keep = on(x, s) and 0 or 1
    local S = keep * s.S + outer(x.k, x.a * x.b * x.v)
    return { S = S, n = s.n + 1 }, dot(x.q, S)
  end,
  function (on, x, s)
    local S = exp(-x.a^2) * s.S + outer(x.k, x.v)
    local y = dot(x.q, S) * x.b
    if not on(x, s) then return { S = S, n = s.n + 1 }, y end
    return { S = S, n = s.n * 0 }, y
  end,
}

local function define(on, effect)
  return pcall(flin.variant, {
    input = { q = "t k", k = "t k", v = "t v", a = "t", b = "t" },
    state = { S = "k v", n = "" },
    step = function (x, s) return effect(on, x, s) end,
  })
end

for e, effect in ipairs(effects) do
  local ok, why = define(function () return false end, effect)
  expect(ok, "effect %d by itself: %s", e, why)
end

-- Where what is not finite stays so, whichever way the step goes.
local none <const> = { infinite = 2, ["minus infinity"] = 2,
                       ["not a number"] = 2, ["no number of s"] = 3 }

for _, name in ipairs(NAMES) do
  for e, effect in ipairs(effects) do
    local n = trap_at()
    if none[name] ~= e then
      expect(not define(conditions[name](n), effect),
             "%s, %d, effect %d: accepted", name, n, e)
    end
  end
end

count.finish()
