-- How long a window takes on a GPU, by its width: as it goes by itself, with
-- states and without; as a band, from rings of tokens (mode = "linear"); over
-- pairs of tokens in it (mode = "quadratic"); beside no window; with the first
-- four tokens; with a gate of each key's. Forward, and both ways.
--   flin tests/bench/windows.lua [T=16384 H=16 D=128]
--              [window | alone | band | pairs | none | sinks | keyed ...]
local flin = require "flin"
io.stdout:setvbuf "line"

local option, asked = { T = 16384, H = 16, D = 128, W = 0 }, {}
for _, word in ipairs(arg) do
  local name, number = word:match "^(%a)=(%d+)$"
  if name then
    option[name] = math.tointeger(number)
  else
    asked[word] = true
  end
end
local every <const> = next(asked) == nil

-- A mask that ends W tokens back; 0: nowhere. first: so many tokens weigh all
-- the same.
local function weight(W, first)
  return function (i, j, p)
    if i < j then return 0 end
    if W > 0 and i - j >= W and j >= first then return 0 end
    return p.beta[j] * flin.exp(p.g_cumsum[i] - p.g_cumsum[j])
  end
end

-- Milliseconds of f: the least of five times three calls, of which the last
-- one's result is fetched.
local function time(f)
  f():to "cpu"
  local least = math.huge
  for _ = 1, 5 do
    local from = flin.clock()
    f()
    f()
    f():narrow(2, 1, 1):to "cpu"
    least = math.min(least, (flin.clock() - from) / 3)
  end
  return least * 1e3
end

local function measure(what, W, mode, states, first, input)
  if not (every or asked[what]) then return end
  local v = flin.variant { name = what, mask = weight(W, first or 0),
                           mode = mode, input = input }
  local x = v:random { B = 1, T = option.T, H = option.H, K = option.D,
                       V = option.D, dtype = "bfloat16" }
  for name, t in pairs(x) do
    x[name] = flin.is_tensor(t) and t:to "cuda" or t
  end
  x.validate = false
  x.states = states
  local ok, ms = pcall(time, function () return (v:forward(x)) end)
  print(("%-6s W %5d forward %s"):format(what, W, ok and ("%9.3f ms"):format(ms)
                                         or tostring(ms):match "[^\n]*"))
  x.dy = x.v
  ok, ms = pcall(time, function () return v:backward(x).v end)
  print(("%-6s W %5d backward, forward again %s"):format(what, W,
        ok and ("%9.3f ms"):format(ms) or tostring(ms):match "[^\n]*"))
end

measure("none", 0)
for _, W in ipairs(option.W > 0 and { option.W } or { 256, 1024, 4096 }) do
  measure("window", W)
  measure("alone", W, nil, false)
  measure("pairs", W, "quadratic")
  measure("band", W, "linear")
  measure("sinks", W, nil, nil, 4)
  measure("keyed", W, nil, nil, 0, { g = "t k : log_decay", beta = "t" })
end
