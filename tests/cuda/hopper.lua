-- Kernels for Hopper against the float64 step, bfloat16: forward, or both ways.
--   flin tests/cuda/hopper.lua [gradients | scheduled | far | angles | wide
--                               | whole] [NAME | SEED | wild_SEED ...]
-- On a driver of tests with FAKE_ARCH=9 they run on the host; FAKE_HOPPER=1
-- then makes sure that no others do.
local flin = require "flin"
local suite = require "suite"
local random_program = require "programs"
local wild_program = require "wild"
local expect, on_gpu, relative = suite.expect, suite.on_gpu, suite.relative

suite.gpu()

-- Long enough that stages are used again: accesses are then seen to be ordered.
local cases = {
  { B = 1, T = 150, H = 1, HV = 2, K = 64, V = 64 },
  { B = 1, T = 440, H = 1, K = 64, V = 64, ends = { 0, 0, 65, 66, 440 } },
}

local own = {}
-- A matrix of keys in float32 beside one that is made of it.
own.weighted = flin.variant {
  name = "weighted",
  input = { q = "t k", k = "t k : unit", x = "t k", v = "t v",
            g = "t : log_decay" },
  state = { S = "k v" },
  step = function (x, s)
    local S = flin.exp(x.g) * s.S + flin.outer(x.k * x.x, x.v)
    return { S = S }, flin.dot(x.q, S)
  end,
}
-- A key of the token before, where two warpgroups are at one chunk.
own.shifted = flin.variant {
  name = "shifted",
  input = { q = "t k", k = "t k : unit_norm", k2 = "t k : unit_norm",
            v = "t v", v2 = "t v", beta = "t : unit", g = "t k : log_decay" },
  state = { S = "k v" },
  step = function (x, s)
    local S, _ = flin.exp(x.g) * s.S, flin.prev(x.k)
    S = S + flin.outer(x.k, x.beta * (x.v - flin.dot(x.k, S)))
    S = S + flin.outer(x.k2, x.beta * x.v2)
    return { S = S }, flin.dot(x.q, S)
  end,
}
-- Two writes that a solve joins, and one beside them.
local two <const> = { q = "t k", k = "t k : unit_norm", k2 = "t k : unit_norm",
                      v = "t v", v2 = "t v", beta = "t : unit",
                      g = "t : log_decay" }
own.mixed = flin.variant {
  name = "mixed",
  input = two,
  state = { S = "k v" },
  step = function (x, s)
    local S = flin.exp(x.g) * s.S
    local D = S
    S = S + flin.outer(flin.silu(x.k), x.v - x.beta * flin.dot(x.k, D))
    S = S + flin.outer(x.k2, x.v2 - x.beta * flin.dot(x.k2, S))
    S = S + flin.outer(x.k, x.v * flin.sigmoid(x.v2))
    return { S = S }, flin.dot(x.q, S)
  end,
}
-- The key before, beside two writes that a solve joins.
own.ranked = flin.variant {
  name = "ranked",
  input = two,
  state = { S = "k v" },
  step = function (x, s)
    local S, _ = flin.exp(x.g) * s.S, flin.prev(x.k)
    S = S + flin.outer(x.k, x.beta * (x.v - flin.dot(x.k, S)))
    S = S + flin.outer(x.k2, x.beta * (x.v2 - flin.dot(x.k2, S)))
    return { S = S }, flin.dot(x.q, S)
  end,
}
-- Decays that are constants, per key, or made of states of one axis, which are
-- made of such constants themselves.
local function decayed(name, axes, m)
  own[name] = flin.variant {
    name = name,
    input = { q = "t k", k = "t k", v = "t v", u = "t k : unit", A = axes },
    state = { S = "k v", m = m and "k" },
    step = function (x, s)
      local left, g = {}, x.A
      if m then
        left.m = m(x, s.m)
        g = -left.m
      end
      local k = x.k * (1 + 0.1 * x.u)
      left.S = flin.exp(g) * s.S + flin.outer(k, x.v)
      return left, flin.dot(x.q, left.S)
    end,
  }
end
decayed("key_decay", "k : log_decay")
decayed("state_decay", ": unit", function (x, m)
  return 0.9 * m + 0.1 * x.u * x.A
end)
decayed("keyed_state_decay", "k : unit", function (x, m)
  return 0.9 * m + 0.1 * x.u * x.A
end)
-- Such states' own decays are constants, too.
local function keeps(x, m) return x.A * m + 0.1 * x.u end
decayed("state_kept", ": unit", keeps)
decayed("keyed_state_kept", "k : unit", keeps)
-- Averages whose gates are inputs: of keys, and of queries by the same gates;
-- of values.
own.averaged_keys = flin.variant {
  name = "averaged_keys",
  input = { q = "t k", k = "t k", v = "t v", a = "t k : unit",
            g = "t : log_decay" },
  state = { S = "k v", m = "k", n = "k" },
  step = function (x, s)
    local m = x.a * s.m + (1 - x.a) * x.k
    local n = x.a * s.n + (1 - x.a) * x.q
    local S = flin.exp(x.g) * s.S + flin.outer(m, x.v)
    return { S = S, m = m, n = n }, flin.dot(n, S)
  end,
}
own.averaged_values = flin.variant {
  name = "averaged_values",
  input = { q = "t k", k = "t k", v = "t v", a = "t v : unit",
            g = "t k : log_decay" },
  state = { S = "k v", m = "v" },
  step = function (x, s)
    local m = x.a * s.m + (1 - x.a) * x.v
    local S = flin.exp(x.g) * s.S + flin.outer(x.k, x.v)
    return { S = S, m = m }, flin.dot(x.q, S) + m
  end,
}
-- Inputs that are only compared: their gradients are zero.
own.compared = flin.variant {
  name = "compared",
  input = { q = "t k", k = "t k : unit_norm", v = "t v", g = "t : log_decay",
            r = "t", w = "t k", u = "t v", beta = "t : unit" },
  state = { S = "k v" },
  step = function (x, s)
    local S = flin.where(flin.lt(1, x.r), 0, flin.exp(x.g)) * s.S
    local k = flin.where(flin.lt(x.w, 0), x.k, 0.5 * x.k)
    local v = flin.where(flin.lt(x.u, 0), x.v, -x.v)
    S = S + flin.outer(x.beta * k, v - flin.dot(k, S))
    return { S = S }, flin.dot(x.q, S)
  end,
}
-- Sums of inputs along keys and values: their gradients are the same for all.
own.summed = flin.variant {
  name = "summed",
  input = { q = "t k", k = "t k", v = "t v", w = "t k", u = "t v" },
  state = { S = "k v" },
  step = function (x, s)
    local S = flin.sigmoid(flin.mean(x.w, "k")) * s.S + flin.outer(x.k, x.v)
    return { S = S }, flin.dot(x.q, S) * flin.sigmoid(flin.sum(x.u, "v"))
  end,
}
-- Gates that are a half at least: what they are made of has gradients by way of
-- their logarithms.
own.floored = flin.variant {
  name = "floored",
  input = { q = "t k", k = "t k", v = "t v", a = "t k : unit", b = "t k" },
  state = { S = "k v" },
  step = function (x, s)
    local gate = (1 - 0.5 * x.a) * (0.9 + 0.1 * flin.sigmoid(x.b))
    local S = gate * s.S + flin.outer(x.k, x.v)
    return { S = S }, flin.dot(x.q, S)
  end,
}
-- Averages of one matrix at two rates, and what the keys add up to.
own.two_averages = flin.variant {
  name = "two_averages",
  input = { q = "t k", k = "t k", v = "t v", a = "k : unit",
            g = "t : log_decay" },
  state = { S = "k v", m = "k", n = "k" },
  step = function (x, s)
    local m, n = 0.9 * s.m + x.k, x.a * s.n + x.k
    local S = flin.exp(x.g) * s.S + flin.outer(m - 0.5 * n, x.v)
    return { S = S, m = m, n = n }, flin.dot(x.q, S)
  end,
}
local function seed_of(name)
  return tonumber(name), tonumber(name:match "^wild_(%d+)$")
end
local function variant(name)
  local seed, wild = seed_of(name)
  if seed then return (random_program(seed)) end
  return wild and wild_program(wild) or own[name] or flin.stdlib[name]
end

-- As models hold them: gates, angles and parameters in float32.
local function mix(v, host)
  for _, a in ipairs(v.inputs) do
    if not a.axes:find "^t .*[kv]"
      or (a.domain ~= "normal" and a.domain ~= "unit_norm") then
      host[a.name] = host[a.name]:to "float32"
    end
  end
end

local function limit_of(name)
  local seed, wild = seed_of(name)
  local more = suite.ROUNDS_MORE[name]
    or (own[name] and not name:find "_decay")
  return (more or seed or wild) and 6e-3 or 4e-3
end

local function check_forward(name, case, ends)
  local v = variant(name)
  local host = v:random(case)
  if ends then mix(v, host) end
  host.cu_seqlens = ends
  local there = on_gpu(host)
  local y, state = v:forward(there)
  local want, left = v:reference(host)
  local limit = limit_of(name)
  local function near(what, a, b)
    local off = relative(a, b)
    expect(off <= limit, "%s T %d: %s is off by %.1e", name, case.T, what,
           off)
  end
  near("y", y, want)
  for key, x in pairs(left) do near(key, state[key], x) end
end

-- Gradients from what forward has saved, and, the same bits, from nothing.
local function check_gradients(name, case, ends, change)
  local v = variant(name)
  local host = v:random(case)
  host.cu_seqlens = ends
  if change then change(v, host) end
  local there = on_gpu(host)
  there.save = true
  local y, _, saved = v:forward(there)
  expect(relative(y, v:reference(host)) <= limit_of(name), "%s: y that saves",
         name)
  host.dy = y:to "cpu"
  there.save, there.dy = nil, host.dy:to "cuda"
  local grad = v:backward { saved = saved, dy = there.dy }
  local again, want = v:backward(there), v:reference_backward(host)
  local moved           -- a rule that divides is moved as far by rounding
  for key, x in pairs(grad) do
    if flin.is_tensor(x) then
      local off = relative(x, want[key])
      moved = moved or off > 8e-3 and suite.moved(v, host, want)
      expect(off <= 8e-3 or off <= moved[key],
             "%s: gradient of %s off by %.1e", name, key, off)
      expect((x:to "cpu" - again[key]:to "cpu"):maxabs() == 0,
             "%s: gradient of %s not the same as from what is saved", name,
             key)
    end
  end
end

-- The same under gates that forget all at once.
local function check_far(name, case, ends)
  check_gradients(name, case, ends, function (v, host)
    if host.A_log then host.A_log:narrow(1, 1, 1):fill(5) end
    for i, a in ipairs(v.inputs) do
      if a.domain == "log_decay" then
        local x = host[a.name]
        host[a.name] = flin.randn(x.shape, { seed = i }):map(suite.far)
                           :to(x.dtype)
      end
    end
  end)
end

-- Sequences so short that no error evens out: operands that are rounded show.
local function check_short(name, case)
  local seed, wild = seed_of(name)
  if seed or wild then return end       -- nothing may have been written yet
  local worst = 0
  for seed = 1, 8 do
    local host = variant(name):random { B = 3, T = 1, H = 2, K = case.K,
                                        V = case.V, dtype = "bfloat16",
                                        seed = seed }
    local y = variant(name):forward(on_gpu(host))
    worst = math.max(worst, relative(y, variant(name):reference(host)))
  end
  expect(worst <= limit_of(name), "%s: y of a token is off by %.1e", name,
         worst)
end

local names, check = { ... }, check_forward
if names[1] == "gradients" then
  check = check_gradients
  table.remove(names, 1)
  table.remove(cases, 1)                -- that of many sequences is enough
end
-- The same by kernels that a schedule was made for; FAKE_SOURCES counts those.
local scheduled = names[1] == "scheduled"
if scheduled then
  check = check_gradients
  table.remove(names, 1)
  cases = { { B = 2, T = 130, H = 2, K = 128, V = 64 },
            { B = 1, T = 330, H = 1, K = 64, V = 128,
              ends = { 0, 0, 65, 66, 330 } } }
end
if names[1] == "far" then
  check = check_far
  table.remove(names, 1)
  cases = { { B = 1, T = 200, H = 2, K = 64, V = 64,
              ends = { 0, 0, 65, 66, 200 } },
            scheduled and { B = 1, T = 150, H = 1, K = 128, V = 64 } or nil }
end
if names[1] == "angles" then
  table.remove(names, 1)
  cases = { { T = 600, K = 32 } }
  check = function (name, case)
    suite.check_angles(name, variant(name), case.T, case.K)
  end
end
if names[1] == "wide" then              -- two blocks of a head work together
  table.remove(names, 1)
  cases = { { B = 1, T = 450, H = 1, K = 128, V = 128,
              ends = { 0, 0, 65, 66, 450 } } }
end
local whole = names[1] == "whole"        -- so many that a block has a head
if whole then
  table.remove(names, 1)
  local ends = { 0, 0, 65, 66, 330 }
  for i = 1, 55 do ends[#ends + 1] = 330 + i end
  cases = { { B = 1, T = 385, H = 1, K = 128, V = 128, ends = ends } }
end
if not names[1] then
  for name in pairs(flin.stdlib) do names[#names + 1] = name end
  for name in pairs(own) do names[#names + 1] = name end
  table.sort(names)
end
for _, name in ipairs(names) do
  for _, case in ipairs(cases) do
    local ends = case.ends
    local at = { seed = 1, dtype = "bfloat16" }
    for key, x in pairs(case) do at[key] = key ~= "ends" and x or nil end
    local ok, why_not = pcall(check, name, at, ends)
    expect(ok, "%s: %s", name, why_not)
  end
  if check == check_forward and not whole then
    check_short(name, cases[1])
  end
end
if scheduled then
  local counted = io.open(os.getenv "FAKE_SOURCES")
  expect(counted and #counted:read "a" > 0, "no kernel came from a schedule")
end
suite.finish()
