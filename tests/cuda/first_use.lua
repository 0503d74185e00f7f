-- What kernels are held against when they are first used: right ones pass,
-- whatever their inputs may be and whatever cancels. Forward and backward,
-- K = V, beside the float64 step.
--   flin tests/cuda/first_use.lua [DTYPE] [K ...]
local flin = require "flin"
local suite = require "suite"
local dot, outer, exp, sigmoid = flin.dot, flin.outer, flin.exp, flin.sigmoid
local expect = suite.expect

local sizes, dtype = { ... }, "bfloat16"
if sizes[1] and not tonumber(sizes[1]) then dtype = table.remove(sizes, 1) end
if not sizes[1] then sizes = { 64, 128 } end

suite.gpu()

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
    return v.name:find "^near" and name == "b" and 1e9 or 1e-2
  end
end

for _, K in ipairs(sizes) do
  K = tonumber(K)
  for _, v in ipairs(free) do
    local T = v.name == "grows" and 20 or 100
    local host = sound(v, { B = 2, T = T, H = 2, K = K, V = K, seed = 3 })
    local y = v:reference(host)
    local ok, why_not = pcall(function ()
      local off = suite.relative(v:forward(suite.on_gpu(host)), y)
      expect(off < 6e-3, "%s, %d keys: y is off by %.1e", v.name, K, off)
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
                            function () return 1e-2 end)
  expect(ok, "comba: %s", why_not)
end
suite.finish()
