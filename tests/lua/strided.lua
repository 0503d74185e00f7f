-- Masks by remainders of positions, which % gives: strides as a state for each
-- remainder, dilated bands, blocks, and comparisons of them.
local flin = require "flin"
local exp = flin.exp

local count = require "support.count"
local masks = require "support.masks"
local check <const>, same_as_sum <const> = count.check, masks.same_as_sum

same_as_sum("every third", function (i, j, p)
  if i < j or (i - j) % 3 > 0 then return 0 end
  return exp(p.g_cumsum[i] - p.g_cumsum[j])
end)
same_as_sum("every other, as a value", function (i, j, p)
  if i < j then return 0 end
  return flin.eq((i - j) % 2, 0) * exp(p.g_cumsum[i] - p.g_cumsum[j])
end)
same_as_sum("two kinds", function (i, j, p)
  if i < j then return 0 end
  if (i - j) % 2 < 1 then return p.a[i] end
  return exp(p.g_cumsum[i] - p.g_cumsum[j])
end)
same_as_sum("two remainders", function (i, j, p)
  if i < j then return 0 end
  if (i - j) % 2 < 1 and (i - j) % 3 < 1 then return p.a[i] end
  if (i - j) % 2 < 1 then return p.b[j] end
  return 0
end)
same_as_sum("a saw", function (i, j)
  if i < j then return 0 end
  return 1 + (i - j) % 3
end)
same_as_sum("multiples", function (i, j)
  if i < j or (2 * i + j + 1) % 4 > 1 then return 0 end
  return 1
end)
same_as_sum("dilated", function (i, j, p)
  if i < j or i - j > 24 or (i - j) % 8 > 0 then return 0 end
  return p.a[j]
end)
same_as_sum("near and strided", function (i, j, p)
  if i < j then return 0 end
  if i - j < 4 then return 1 end
  if (i - j) % 4 > 0 then return 0 end
  return exp(p.g_cumsum[i] - p.g_cumsum[j])
end)
same_as_sum("near and summaries", function (i, j, p)
  if i < j then return 0 end
  if i - j < 3 or j % 8 > 6 then return p.a[j] end
  return 0
end)
same_as_sum("both directions", function (i, j, p)
  if (i - j) % 2 > 0 then return 0 end
  if i < j then return exp(0.1 * (i - j)) end
  return p.w[j]
end, { causal = false })
for _, how in ipairs { "quadratic", "softmax" } do
  local v = flin.variant { name = how, mode = how == "quadratic" and how or nil,
                           normalise = how == "softmax" and how or nil,
                           mask = function (i, j)
    if i < j or (i - j) % 3 > 0 then return 0 end
    return 1 / (i - j + 1)
  end }
  local e = v:check { T = 40, K = 4, V = 4 }
  check(how, e.worst <= 1e-5, e)
end

-- Blocks of tokens: the numbers of these, i // n, or where one begins.
for _, n in ipairs { 2, 5, 7, 10, 16 } do
  local function named(what) return ("%s, of %d"):format(what, n) end
  same_as_sum(named "blocks before", function (i, j, p)
    if i - i % n > j then return p.b[j] end
    return 0
  end)
  same_as_sum(named "their decays", function (i, j, p)
    if i // n > j // n then return exp(p.g_cumsum[i] - p.g_cumsum[j]) end
    return 0
  end)
  same_as_sum(named "its own", function (i, j, p)
    if i < j or i // n ~= j // n then return 0 end
    return exp(p.g_cumsum[i] - p.g_cumsum[j])
  end)
  same_as_sum(named "its own, and before", function (i, j, p)
    if i < j then return 0 end
    if i // n == j // n then return p.a[i] / (i - j + 1) end
    return exp(p.g_cumsum[i] - p.g_cumsum[j])
  end)
  same_as_sum(named "shifted", function (i, j, p)
    if i < j then return 0 end
    if (i + 3) // n - (j + 1) // n <= 1 then return p.b[j] end
    return 0
  end)
  same_as_sum(named "up to the diagonal's block", function (i, j, p)
    if i // n < j // n then return p.b[j] end
    return exp(p.g_cumsum[i] - p.g_cumsum[j])
  end, { causal = false, input = { b = "t", g = "t : log_decay" } }, 5e-5)
end
same_as_sum("a block as a value", function (i, j)
  if i < j or i - j > 20 then return 0 end
  return flin.eq(i // 10, j // 10) + 0.1
end)
do                                      -- no wider than they are
  local form = flin.variant { name = "own", mask = function (i, j)
    if i < j or i // 12 ~= j // 12 then return 0 end
    return 1
  end }.form
  check("a block's width", form:find "pairs of tokens within 12,", form)
end

-- A weight for each place of a block of four: one kind of number a comparison.
do
  local v = flin.variant { name = "kinds", mask = function (i, j, p)
    if i < j then return 0 end
    if i % 4 > 2 then return 0 end
    if j % 4 < 1 then return p.a[j] end
    return p.b[j]
  end }
  check("one state", #v.states == 2, #v.states)     -- and the position
end

-- % in a step is of values, too: Lua's own, of the divisor's sign.
do
  local v = flin.variant { name = "mod", input = { x = "t", v = "t v" },
                           state = { S = "v" }, step = function (x, s)
    local S = 0.5 * s.S + x.x % 1.5 * x.v
    return { S = S }, S % -2
  end }
  local e = v:check { T = 50, V = 4, backward = false }
  check("a step's", e.y <= 1e-5, e)
  local x = v:random { B = 1, H = 1, T = 1, V = 2, dtype = "float64" }
  local y = v:reference(x)
  for n = 1, 2 do
    local S = x.x[{ 1, 1, 1 }] % 1.5 * x.v[{ 1, 1, 1, n }]
    check("as Lua has it " .. n, math.abs(y[{ 1, 1, 1, n }] - S % -2) < 1e-12,
          y[{ 1, 1, 1, n }])
  end
end

local function refused(name, mask, message)
  local ok, why = pcall(flin.variant, { mask = mask })
  check(name, not ok and tostring(why):find(message, 1, true), why)
end

refused("too many remainders", function (i, j)
  if i < j or (i - j) % 64 > 0 then return 0 end
  return 1
end, "a stride of 64")
refused("blocks of two sizes", function (i, j)
  if i < j then return 0 end
  if i // 4 > j // 6 + 1 then return 1 end
  return 0
end, "blocks of one size")
refused("a block's begin, far away", function (i, j)
  if i < j then return 0 end
  return flin.where(flin.le(i // 4, 2 * (j // 4)), 1, 0)
end, "mask does not factor")
refused("an equality", function (i, j)
  if i < j or (i - j) % 4 ~= 0 then return 0 end
  return 1
end, "i % 4 > 0")
refused("of data", function (i, j, p)
  if i < j or p.x[j] % 2 > 1 then return 0 end
  return 1
end, "cannot branch on data")

count.finish()
