-- What leaves float16's range: decays per key that forget all at once, whose
-- factors need a float's exponents; exponentials of large inputs, which no
-- kernel has in float16, but divided by their sum. Both ways, by the float64
-- step.
--   flin tests/cuda/range.lua [NAME ...]
local flin = require "flin"
local suite = require "suite"
local exp, dot, outer = flin.exp, flin.dot, flin.outer

suite.gpu()

local GATES <const> = { log_decay = true, unit = true, positive = true }

-- A quarter of bfloat16's limits.
local function check(name, v, host)
  local y = v:reference(host)
  local off = suite.relative(v:forward(suite.on_gpu(host)), y)
  suite.expect(off <= 1.5e-3, "%s: y is off by %.1e", name, off)
  host.dy = flin.randn(y.shape, { seed = 9 }):to "float16"
  local gates = {}
  for _, input in ipairs(v.inputs) do
    gates[input.name] = GATES[input.domain]
  end
  suite.check_gradients(name, v, host, function (input)
    return gates[input] and 5e-3 or 2e-3
  end)
end

-- Gates in float32, as they are where a token forgets.
local function far(v, size)
  local host = suite.typed(v, v:random(size), "float16")
  for i, input in ipairs(v.inputs) do
    if input.domain == "log_decay" then
      host[input.name] = flin.randn(host[input.name].shape, { seed = i })
                             :map(suite.far)
    end
  end
  return host
end

-- Entries of a few tens.
local function large(v, size)
  local host = v:random(size)
  for name, x in pairs(host) do
    host[name] = ((name == "k" or name == "q") and 4 * x or x):to "float16"
  end
  return host
end

-- Slots that are written by exp(s), of 12 either way, and read by exp(r).
local function slots(v, size)
  local host = v:random(size)
  for name, x in pairs(host) do
    host[name] = (name == "s" and 4 * x or name == "q" and 2 * x or x)
                     :to "float16"
  end
  return host
end

-- Features that are exponentials, of what a result divides by their sum.
local features <const> = flin.variant {
  name  = "exponentials",
  input = { q = "t k", k = "t k", v = "t v" },
  state = { S = "k v" },
  step  = function (x, s)
    local S = s.S + outer(exp(x.k), x.v)
    return { S = S }, 1e-7 * dot(x.q, S)
  end,
}

-- The same beside decays per key, and before a delta rule.
local decayed <const> = flin.variant {
  name  = "decayed_exponentials",
  input = { q = "t k", k = "t k", v = "t v", g = "t k : log_decay" },
  state = { S = "k v" },
  step  = function (x, s)
    local S = exp(x.g) * s.S + outer(exp(0.75 * x.k), x.v)
    return { S = S }, 1e-3 * dot(x.q, S)
  end,
}
local solved <const> = flin.variant {
  name  = "solved_exponentials",
  input = { q = "t k", w = "t k : unit_norm", v = "t v" },
  state = { S = "k v" },
  step  = function (x, s)
    local S = s.S + outer(x.w, exp(3 * x.v) - dot(x.w, s.S))
    return { S = S }, 1e-2 * dot(x.q, S)
  end,
}
local own <const> = {
  exponentials = features, decayed_exponentials = decayed,
  solved_exponentials = solved,
}

local cases <const> = {
  gla = far, hgrn2 = far, kda = far, gdn2 = far, rwkv6 = far,
  precond_kda = far, lightnet = large, exponentials = large,
  gsa = slots, abc = slots, decayed_exponentials = large,
  solved_exponentials = large,
}
local names = { ... }
if #names == 0 then
  for name in pairs(cases) do names[#names + 1] = name end
  table.sort(names)
end
for _, name in ipairs(names) do
  local v = own[name] or flin.stdlib[name]
  check(name, v, cases[name](v, { B = 1, T = 130, H = 1, K = 64, V = 64,
                                  seed = 3, dtype = "float32" }))
end
suite.finish()
