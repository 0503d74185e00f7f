-- What kernels are held against when they are first used: right ones pass,
-- whatever their inputs may be and whatever cancels. Forward and backward,
-- K = V, beside the float64 step.
--   flin tests/cuda/first_use.lua [DTYPE] [K ...] [NAME ...]
-- Names are of the standard library, all for all of it: its rules then, by
-- gates as they are drawn, weak ones and strong ones, and nothing else.
local flin = require "flin"
local suite = require "suite"
local dot, outer, exp, sigmoid = flin.dot, flin.outer, flin.exp, flin.sigmoid
local expect = suite.expect

local sizes, names, dtype = {}, {}, "bfloat16"
for _, word in ipairs { ... } do
  if tonumber(word) then sizes[#sizes + 1] = tonumber(word)
  elseif word:find "float" then dtype = word
  elseif word == "all" then names = flin.stdlib_names
  else names[#names + 1] = word
  end
end
if not sizes[1] then sizes = { 64, 128 } end

suite.gpu()

-- What products of a type may be off by, in results and gradients, some of
-- which cancel.
local LIMIT <const> = { float32 = { y = 1e-5, grad = 5e-5 } }
local limit = LIMIT[dtype] or { y = 6e-3, grad = 1e-2 }

-- Rules and their gates' strengths.
local STRENGTHS <const> = { 1, 0.01, 8 }

local function with_gates(v, strength, K, seed)
  local host = suite.typed(v, v:random { B = 2, T = 100, H = 2, K = K, V = K,
                                         seed = seed }, dtype)
  for _, input in ipairs(v.inputs) do
    if input.domain == "log_decay" then
      host[input.name] = host[input.name] * strength
    end
  end
  return host
end

local function gated(v)
  for _, input in ipairs(v.inputs) do
    if input.domain == "log_decay" then return true end
  end
end

for _, K in ipairs(names[1] and sizes or {}) do
  for _, name in ipairs(names) do
    local v = flin.stdlib[name]
    for i, strength in ipairs(gated(v) and STRENGTHS or { 1 }) do
      local host = with_gates(v, strength, K, i)
      local y = v:reference(host)
      local ok, why_not = pcall(function ()
        local off = suite.relative(v:forward(suite.on_gpu(host)), y)
        expect(off < limit.y, "%s, %d, gates by %g: y is off by %.1e", name, K,
               strength, off)
        host.dy = flin.randn(y.shape, { seed = 9 }):to(dtype)
        suite.check_gradients(name, v, host, function () return limit.grad end)
      end)
      expect(ok, "%s, %d, gates by %g: %s", name, K, strength, why_not)
    end
  end
end
if names[1] then suite.finish() end

local free = {}
local function add(name, input, step)
  free[#free + 1] = flin.variant { name = name, input = input, step = step,
                                   state = { S = "k v" } }
end

-- Gated DeltaNet and DeltaNet whose keys may have any length.
local function delta(x, S)
  S = S + outer(x.beta * x.k, x.v - dot(x.k, S))
  return { S = S }, dot(x.q, S)
end
add("gated_free", { q = "t k", k = "t k", v = "t v", g = "t", beta = "t" },
    function (x, s) return delta(x, exp(x.g) * s.S) end)
add("delta_free", { q = "t k", k = "t k", v = "t v", beta = "t" },
    function (x, s) return delta(x, s.S) end)
add("delta_keys", { q = "t k", k = "t k", v = "t v", beta = "t : unit" },
    function (x, s) return delta(x, s.S) end)
-- RWKV-7's transition, of any a and b.
add("dplr_free", { r = "t k", k = "t k", v = "t v", w = "t k", a = "t k",
                   b = "t k" }, function (x, s)
  local S = exp(-exp(x.w)) * s.S + outer(x.b, dot(x.a, s.S)) + outer(x.k, x.v)
  return { S = S }, dot(x.r, S)
end)
-- Gradients that are nothing but rounding.
for _, axes in ipairs { "", "t" } do
  add("near_zero" .. axes, { q = "t k", k = "t k", v = "t v", b = axes },
      function (x, s)
    local S = s.S + outer(flin.l2norm(x.k * sigmoid(x.b)), x.v)
    return { S = S }, dot(x.q, S)
  end)
end
-- More than float32 holds after the tokens of two chunks.
add("grows", { q = "t k", k = "t k", v = "t v" }, function (x, s)
  local S = 10 * s.S + outer(x.k, x.v)
  return { S = S }, dot(x.q, S)
end)

-- Inputs with which such a step is sound: keys of length 1, small gates.
local function sound(v, at)
  local host = suite.typed(v, v:random(at), dtype)
  for _, input in ipairs(v.inputs) do
    local x, name = host[input.name], input.name
    if name == "v" or name == "q" then
      host[name] = x
    elseif input.axes == "t k" then
      host[name] = x:to "float32":unit():to(x.dtype)
    elseif input.domain == "" or input.domain == "normal" then
      host[name] = x * 0.3
    end
  end
  return host
end

-- A gradient that is nothing but rounding has no relative error.
local function limit_of(v)
  return function (name)
    return v.name:find "^near" and name == "b" and 1e9 or limit.grad
  end
end

for _, K in ipairs(sizes) do
  for _, v in ipairs(free) do
    local T = v.name == "grows" and 20 or 100
    local host = sound(v, { B = 2, T = T, H = 2, K = K, V = K, seed = 3 })
    local y = v:reference(host)
    local ok, why_not = pcall(function ()
      local off = suite.relative(v:forward(suite.on_gpu(host)), y)
      expect(off < limit.y, "%s, %d keys: y is off by %.1e", v.name, K, off)
      host.dy = flin.randn(y.shape, { seed = 9 }):to(dtype)
      suite.check_gradients(v.name, v, host, limit_of(v))
    end)
    expect(ok, "%s, %d keys: %s", v.name, K, why_not)
  end
end

-- d_d is a sum over tokens and sequences that all but cancels where kernels
-- are checked.
local v = flin.stdlib.comba
for _, at in ipairs { { B = 4, T = 150, H = 2 }, { B = 2, T = 100, H = 3 } } do
  at.K, at.V = 128, 128
  local host = suite.typed(v, v:random(at), dtype)
  host.dy = flin.randn(v:reference(host).shape, { seed = 9 }):to(dtype)
  local ok, why_not = pcall(suite.check_gradients, "comba", v, host,
                            function () return limit.grad end)
  expect(ok, "comba: %s", why_not)
end
suite.finish()
