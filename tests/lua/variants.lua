-- Variants from their papers: each file of tests/variants has a loop over plain
-- numbers and, where the standard library has none of the name, the step as
-- flin takes it. Results, final states and gradients (differences of that
-- loop) are held to it, in chunks or token by token; which road is taken, and
-- why, is part of each file. Arguments: names; "cuda" runs them on a GPU.
local flin = require "flin"

local NAMES <const> = { "abc", "based", "cyfa", "dplr", "gated_oja", "gsa",
  "hawk", "hgrn", "iplr", "kalman", "lightnet", "linoss", "log_linear",
  "longhorn", "mesa_net", "path", "rebased", "rwkv4", "s4d", "s6", "slstm",
  "titans", "ttt" }
local T <const>, CHUNK <const>, STEP <const> = 21, 8, 1e-3

local passed, failed = 0, 0
local function expect(name, got, limit)
  if got <= limit then
    passed = passed + 1
  else
    failed = failed + 1
    print(("FAIL %s: %.2e, at most %.0e"):format(name, got, limit))
  end
end

-- Zeros in nested tables, along the axes that a declaration names.
local function zeros(axes, size, at)
  local axis, rest = (axes:sub(at or 1)):match "^%s*(%w+)(.*)$"
  if not axis then
    return 0
  end
  local t = {}
  for i = 1, size[axis] do
    t[i] = zeros(rest, size)
  end
  return t
end

-- Calls f on each number of a, beside that of b, and keeps what it gives.
local function each(a, b, f)
  if type(a) == "number" then
    return f(a, b)
  end
  local t = {}
  for i, x in ipairs(a) do
    t[i] = each(x, b and b[i], f)
  end
  return t
end

local function inner(a, b)
  local sum = 0
  each(a, b, function (x, y)
    sum = sum + x * y
    return 0
  end)
  return sum
end

-- Of a tensor [1, T, 1, ...] the tokens, of one [1, ...] the constant.
local function plain(tensor, timed)
  local t = tensor:totable()[1]
  if not timed then
    return t
  end
  local tokens = {}
  for i, x in ipairs(t) do
    tokens[i] = x[1]
  end
  return tokens
end

local function run(case, v, x)
  local s, y = {}, {}
  for _, state in ipairs(v.states) do
    s[state.name] = zeros(state.axes, case.size)
  end
  for t = 1, T do
    local token = {}
    for _, input in ipairs(v.inputs) do
      local timed = input.axes:find "^t"
      token[input.name] = timed and x[input.name][t] or x[input.name]
    end
    y[t] = case.oracle(token, s)
  end
  return y, s
end

local function difference(got, want)
  local worst, most = 0, 1e-3
  each(want, got, function (a, b)
    worst = math.max(worst, a == b and 0 or math.abs(a - b))
    most = math.max(most, math.abs(a))
    return 0
  end)
  return worst / most
end

-- The slope of sum(dy y) along d, of the input that has this name.
local function slope(case, v, x, name, d, dy)
  local old = x[name]
  local function at(h)
    x[name] = each(old, d, function (a, b) return a + h * b end)
    local y = run(case, v, x)
    x[name] = old
    return inner(y, dy)
  end
  return (8 * (at(STEP) - at(-STEP)) - (at(2 * STEP) - at(-2 * STEP)))
         / (12 * STEP)
end

local function check(name, device)
  local case = dofile("tests/variants/" .. name .. ".lua")
  local v = case.variant and case.variant(flin) or flin.stdlib[name]
  local options = { B = 1, T = T, H = 1, seed = 3 }
  for axis, n in pairs(case.size) do
    options[axis:upper()] = n
  end
  local x, numbers = v:random(options), {}
  for _, input in ipairs(v.inputs) do
    numbers[input.name] = plain(x[input.name], input.axes:find "^t")
  end
  local y, left = run(case, v, numbers)
  local call = { chunk = CHUNK, validate = false }
  for key, t in pairs(x) do
    call[key] = device and t:to(device) or t
  end
  local function here(t)
    return device and t:to "cpu" or t
  end
  local got, state = v:forward(call)
  got = here(got)
  local limit = 2e-5
  expect(name .. ": y", difference(plain(got, true), y), limit)
  for key, t in pairs(state) do
    expect(name .. ": " .. key,
           difference(here(t):totable()[1][1], left[key]), limit)
  end
  flin.seed(5)
  local dy = flin.randn(got.shape)
  call.dy = device and dy:to(device) or dy
  local gradient, weights = v:backward(call), plain(dy, true)
  local most, off = 1e-3, 0
  for _, input in ipairs(v.inputs) do
    local timed = input.axes:find "^t"
    local d = plain(flin.randn(x[input.name].shape), timed)
    local want = slope(case, v, numbers, input.name, d, weights)
    local is = inner(plain(here(gradient[input.name]), timed), d)
    most, off = math.max(most, math.abs(want)),
                math.max(off, math.abs(want - is))
  end
  expect(name .. ": gradients", off / most, 2e-4)
  local road = v.form:match "runs in chunks" and "chunks"
               or v.form:match "token by token: ([^\n]*)" or v.form
  expect(name .. ": road " .. road,
         road:find(case.road, 1, true) and 0 or 1, 0)
  print(("%-10s %s"):format(name, road:gsub("^.*%.lua:%d+: ", "token by "
                                            .. "token: ")))
end

local device = arg[1] == "cuda" and table.remove(arg, 1) or nil
for _, name in ipairs(#arg > 0 and arg or NAMES) do
  local ok, why = pcall(check, name, device)
  if not ok then
    failed = failed + 1
    print("FAIL " .. name .. ": " .. tostring(why))
  end
end
print(("%d passed, %d failed"):format(passed, failed))
