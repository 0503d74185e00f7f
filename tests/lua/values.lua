-- Values: each function and operator means in a step what it means for plain
-- numbers, and what Lua's own mathematics says.
local flin = require "flin"
local exp, log, huge = math.exp, math.log, math.huge

local passed, failed = 0, 0
local function check(name, got, want)
  local ok = got == want or math.abs(got - want) <= 1e-12 * (1 + math.abs(want))
  if ok then passed = passed + 1 return end
  failed = failed + 1
  print(string.format("not ok %s: %s, not %s", name, got, want))
end

-- ---- scalars ----

local A <const> = { -2.5, -1, -0.3, 0, 0.7, 1, 2, 30 }
local B <const> = { 1.5, -1, 0.2, 0, 0.7, -3, 2, -30 }

local function softplus(a)
  return math.max(a, 0) + log(1 + exp(-math.abs(a)))
end
local function sigmoid(a) return 1 / (1 + exp(-a)) end
local function bit(c) return c and 1 or 0 end

-- In words of flin, and of Lua; `from`: the least operand that it is for.
local CASES <const> = {
  exp = { flin.exp, exp },
  log = { flin.log, function (a) return log(a) end, from = 0.1 },
  sqrt = { flin.sqrt, math.sqrt, from = 0 },
  rsqrt = { flin.rsqrt, function (a) return a^-0.5 end, from = 0.1 },
  abs = { flin.abs, math.abs }, floor = { flin.floor, math.floor },
  sign = { flin.sign, function (a) return bit(a > 0) - bit(a < 0) end },
  sin = { flin.sin, math.sin }, cos = { flin.cos, math.cos },
  tanh = { flin.tanh, function (a) return 1 - 2 / (exp(2 * a) + 1) end },
  sigmoid = { flin.sigmoid, sigmoid },
  softplus = { flin.softplus, softplus },
  relu = { flin.relu, function (a) return math.max(a, 0) end },
  square = { flin.square, function (a) return a * a end },
  silu = { flin.silu, function (a) return a * sigmoid(a) end },
  logsigmoid = { flin.logsigmoid, function (a) return -softplus(-a) end },
  min = { flin.min, math.min }, max = { flin.max, math.max },
  lt = { flin.lt, function (a, b) return bit(a < b) end },
  le = { flin.le, function (a, b) return bit(a <= b) end },
  gt = { flin.gt, function (a, b) return bit(a > b) end },
  ge = { flin.ge, function (a, b) return bit(a >= b) end },
  eq = { flin.eq, function (a, b) return bit(a == b) end },
  where = { function (a, b) return flin.where(flin.lt(a, b), a, 2 * b) end,
            function (a, b) return a < b and a or 2 * b end },
  sum = { flin.sum, function (a) return a end },
  mean = { flin.mean, function (a) return a end },
  ["where of a number"] = { function (a, b) return flin.where(1, a * b, a) end,
                            function (a, b) return a * b end },
  ["where of false"] = { function (a, b) return flin.where(false, a, b) end,
                         function (_, b) return b end },
  ["+"] = { function (a, b) return a + b + 1 end },
  ["-"] = { function (a, b) return 1 - a - b - 2 end },
  ["*"] = { function (a, b) return 3 * a * b end },
  ["/"] = { function (a, b) return a / (b * b + 1) + 1 / (a * a + 2) end },
  ["unary -"] = { function (a, b) return -a - -b end },
  ["^0"] = { function (a) return a^0 + a end },
  ["^2"] = { function (a) return a^2 end },
  ["^3"] = { function (a) return a^3 end },
  ["^7"] = { function (a) return a^7 end },
  ["^-1"] = { function (a) return a^-1 end, from = 0.1 },
  ["^-2"] = { function (a) return a^-2 end, from = 0.1 },
  ["^0.5"] = { function (a) return a^0.5 end, from = 0 },
  ["^-0.5"] = { function (a) return a^-0.5 end, from = 0.1 },
  ["^1.7"] = { function (a) return a^1.7 end, from = 0.1 },
}

-- flin's own take one operand and no more.
local UNARY <const> = {}
for name in ([[exp log sqrt rsqrt abs floor sign sin cos tanh sigmoid softplus
               relu square silu logsigmoid sum mean]]):gmatch "%a+" do
  UNARY[name] = true
end

local function row(list)
  local t = {}
  for i, x in ipairs(list) do t[i] = { x } end
  return flin.tensor({ t }, { dtype = "float64" })
end

for name, case in pairs(CASES) do
  local lua = case[2] or case[1]
  local f = case[1]
  if UNARY[name] then
    f = function (a) return case[1](a) end
  end
  local v = flin.variant {
    input = { a = "t", b = "t" }, state = { read = "" },
    step = function (x) return { read = x.a + x.b }, f(x.a, x.b) end,
  }
  local y = v:reference { a = row(A), b = row(B) }:totable()[1]
  for i, a in ipairs(A) do
    if a >= (case.from or -huge) then
      check(name .. " of values", y[i][1], lua(a, B[i]))
      check(name .. " of numbers", f(a, B[i]), lua(a, B[i]))
    end
  end
end

-- ---- named axes ----

-- One token of one head: each argument a list or a list of lists.
local function one(t)
  return flin.tensor({ { { t } } }, { dtype = "float64" })
end
local K <const> = { 2, -1, 0.5, 3 }
local M <const> = { { 1, 2, 3, 4 }, { 5, 6, 7, 8 } }

-- What the step makes of k "k", m "n k", p "p" and q "p".
local function run(f, axes)
  local v = flin.variant {
    axes = axes,
    input = { k = "t k", m = "t n k", p = "t p", q = "t p" },
    state = { read = "" },
    step = function (x)
      local sum = flin.sum
      return { read = sum(x.k) + sum(x.m) + sum(x.p) + sum(x.q) }, f(x)
    end,
  }
  local y = v:reference { k = one(K), m = one(M), p = one { 0.3, -2 },
                          q = one { 1, 2 } }
  local list = {}
  local function flat(t)
    if type(t) ~= "table" then list[#list + 1] = t return end
    for _, u in ipairs(t) do flat(u) end
  end
  flat(y:totable())
  return list
end

local function same(name, got, want)
  check(name .. ": how many", #got, #want)
  for i = 1, #want do
    check(name .. "[" .. i .. "]", got[i] or huge, want[i])
  end
end

same("sum", run(function (x) return flin.sum(x.m) end), { 36 })
same("sum over k", run(function (x) return flin.sum(x.m, "k") end), { 10, 26 })
same("sum over n k", run(function (x) return flin.sum(x.m, "n k") end), { 36 })
same("mean", run(function (x) return flin.mean(x.m, "n") end), { 3, 4, 5, 6 })
same("size", run(function (x) return flin.size(x.m, "k") + 0 * x.k end),
     { 4, 4, 4, 4 })
same("dot", run(function (x) return flin.dot(x.k, x.m) end), { 13.5, 31.5 })
same("dot over n", run(function (x) return flin.dot(x.m, x.m * x.k, "n") end),
     { 52, -40, 29, 240 })
same("dot of all that is shared",
     run(function (x) return flin.dot(x.m, x.m) end), { 204 })
same("outer", run(function (x) return flin.outer(x.q, x.k) end, { p = 2 }),
     { 2, -1, 0.5, 3, 4, -2, 1, 6 })
same("at", run(function (x) return flin.at(x.m, "n", 2) end), { 5, 6, 7, 8 })
same("at of a sum", run(function (x) return flin.at(x.m + x.k, "k", 3) end),
     { 3.5, 7.5 })
same("rename", run(function (x)
  return flin.dot(flin.rename(x.m, "n", "c"), x.k)
end), { 13.5, 31.5 })
local norm = 1 / math.sqrt(14.25 + 1e-6)
same("l2norm", run(function (x) return flin.l2norm(x.k) end),
     { 2 * norm, -norm, 0.5 * norm, 3 * norm })
local n1, n2 = 1 / math.sqrt(30 + 1e-6), 1 / math.sqrt(174 + 1e-6)
same("l2norm over k", run(function (x) return flin.l2norm(x.m, "k") end),
     { n1, 5 * n2, 2 * n1, 6 * n2, 3 * n1, 7 * n2, 4 * n1, 8 * n2 })

local c, s, c2, s2 = math.cos(0.3), math.sin(0.3), math.cos(-2), math.sin(-2)
local turned <const> = { 2 * c + s, 2 * s - c, 0.5 * c2 - 3 * s2,
                         0.5 * s2 + 3 * c2 }
same("rotate", run(function (x) return flin.rotate(x.k, x.p) end), turned)
same("rotate by name",
     run(function (x) return flin.rotate(x.k, x.p, "k") end), turned)
same("rotate some", run(function (x)
  return flin.rotate(x.k, flin.at(x.p, "p", 1) + 0 * flin.rename(flin.at(
         flin.rename(x.m, "k", "z"), "z", 1), "n", "p"))
end), { 2 * c + s, 2 * s - c, 0.5 * c - 3 * s, 0.5 * s + 3 * c })

-- ---- the token before ----

do
  local v = flin.variant {
    input = { k = "t k" },
    step = function (x)
      return {}, flin.prev(x.k) + 10 * flin.prev(flin.prev(x.k))
                 + 100 * flin.prev(x.k * 2)
    end,
  }
  local k = flin.tensor({ { { { 1 } }, { { 2 } }, { { 3 } } } },
                        { dtype = "float64" })
  local y, state = v:reference { k = k }
  same("prev", { y[{ 1, 1, 1, 1 }], y[{ 1, 2, 1, 1 }], y[{ 1, 3, 1, 1 }] },
       { 0, 201, 412 })
  check("prev: states", #v.states, 3)
  check("prev: final state", state.prev_k[{ 1, 1, 1 }], 3)
  local later = v:reference { k = k, initial_state = state }
  check("prev: initial state", later[{ 1, 1, 1, 1 }], 3 + 20 + 600)
end

-- ---- print works in a step ----

do
  local text
  flin.variant {
    input = { k = "t k", g = "t" },
    step = function (x)
      -- as it is traced; then it is run on numbers
      text = text or tostring(x.k * 2 + x.g) .. " / " .. x.g
      return {}, x.k * x.g
    end,
  }
  check("text of a value", text == "g + k*2 (axes: k) / g (axes: none)"
        and 1 or 0, 1)
end

print(string.format("%d passed, %d failed", passed, failed))
