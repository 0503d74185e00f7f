-- On a GPU: all pairs of tokens by tiles, softmax attention and masks that do
-- not factor: forward and gradients against float64, the same bits each time,
-- packed sequences that know nothing of one another.
--   flin tests/cuda/pairs.lua [large] [NAME ...]
-- large: more tokens than a compiler on the host manages in seconds.
local flin = require "flin"
local exp, tanh = flin.exp, flin.tanh
local suite = require "suite"
local expect <const>, on_gpu <const> = suite.expect, suite.on_gpu
local relative <const> = suite.relative

local large, only = false, nil
for _, word in ipairs { ... } do
  if word == "large" then large = true
  else only = only or {} only[word] = true end
end

suite.gpu { poison = true }

local variants <const> = {
  causal = { normalise = "softmax" },
  window = { normalise = "softmax", mask = function (i, j)
    if i < j or i - j >= 70 then return 0 end
    return 1
  end },
  sinks = { normalise = "softmax", scale = 0.2, mask = function (i, j)
    if i < j then return 0 end
    if j < 4 or i - j < 40 then return 1 end
    return 0
  end },
  -- more first keys than a tile has
  many_sinks = { normalise = "softmax", input = { b = "t" },
                 mask = function (i, j, p)
    if i < j then return 0 end
    if j < 150 then return exp(p.b[j]) end
    if i - j < 40 then return exp(p.b[i]) end
    return 0
  end },
  alibi = { normalise = "softmax", input = { slope = "" },
            mask = function (i, j, p)
    if i < j then return 0 end
    return exp(-p.slope * (i - j))
  end },
  capped = { normalise = "softmax", score = function (s, i, j, p)
    return 2 * tanh(s / 2) + p.b[j] + p.c[i] * s
  end },
  forgetting = { normalise = "softmax", mask = function (i, j, p)
    if i < j then return 0 end
    return p.w[j] ^ 2 * exp(p.g_cumsum[i] - p.g_cumsum[j])
  end },
  documents = { normalise = "softmax", input = { doc = "t" },
                mask = function (i, j, p)
    if i < j then return 0 end
    return flin.eq(p.doc[i], p.doc[j])
  end },
  like_documents = { mode = "quadratic", mask = function (i, j, p)
    if i < j then return 0 end
    return flin.eq(p.doc[i], p.doc[j])
  end },
  coupled = { mode = "quadratic", mask = function (i, j, p)
    if i < j then return 0 end
    return p.b[j] / (i - j + 1) * flin.sigmoid(p.a[i] * p.a[j - 1])
  end },
  -- a mask for each key, for each value, for each pair of them; of leaves that
  -- tokens have, and heads
  of_keys = { mode = "quadratic", input = { w = "t k", z = "k", b = "t" },
              mask = function (i, j, p)
    if i < j then return 0 end
    return p.b[i] / (1 + exp(p.w[j] + p.z) * (i - j))
  end },
  of_values = { mode = "quadratic", input = { w = "t v", z = "", a = "t" },
                mask = function (i, j, p)
    if i < j then return 0 end
    return exp(p.w_cumsum[i] - p.w_cumsum[j])
         / (1 + exp(p.z) * (i - j)) * flin.sigmoid(p.a[i] + p.w[j - 1])
  end },
  of_both = { mode = "quadratic", causal = false,
              input = { w = "t v", z = "k", u = "t k", a = "t" },
              mask = function (i, j, p)
    if flin.abs(i - j) >= 30 then return 0 end
    return flin.sigmoid(p.a[i] * p.w[j] + p.u[i] + p.z)
         * exp(-exp(p.z) * flin.abs(i - j) / 10)
  end },
  -- other tokens weigh, too, those behind by another rule; near ones alone
  both_ways = { mode = "quadratic", causal = false, mask = function (i, j, p)
    if i < j then return flin.sigmoid(p.a[i] + p.b[j]) / (j - i) end
    return p.b[j] * exp(p.g_cumsum[i] - p.g_cumsum[j]) / (i - j + 1)
  end },
  near_both_ways = { mode = "quadratic", causal = false,
                     mask = function (i, j, p)
    if flin.abs(i - j) >= 70 then return 0 end
    return flin.sigmoid(p.a[i] * p.b[j])
  end },
}

-- What inputs are: of documents, their numbers; of gates, below zero.
local function number(name, shape)
  if name == "doc" then
    local at = {}
    for t = 1, shape[2] do at[t] = { t // 37, t // 50 } end
    return flin.tensor { at }
  end
  local x = flin.randn(shape, { seed = name:byte() }) * 0.2
  return name == "g" and x * x * -1 or x
end

local function inputs(v, T, D, heads, dtype)
  local x = { dy = flin.randn({ 1, T, 2, D }, { seed = 9 }):to(dtype) }
  for _, input in ipairs(v.inputs) do
    local n = input.name
    if n == "q" or n == "k" or n == "v" then
      x[n] = flin.randn({ 1, T, n == "q" and 2 or heads, D },
                        { seed = n:byte() }):to(dtype)
    else
      local shape = input.axes:find "t" and { 1, T, 2 } or { 2 }
      if input.axes:find "[kv]" then shape[#shape + 1] = D end
      x[n] = number(n, shape):to(#shape > 2 and dtype or "float32")
    end
  end
  return x
end

local limits <const> = { float32 = 1e-5, bfloat16 = 8e-3, float16 = 1.5e-3 }

local function check(name, T, D, heads, dtype, cu)
  if only and not only[name] then return end
  local def = { name = name }
  for k, x in pairs(variants[name]) do def[k] = x end
  local v = flin.variant(def)
  local x = inputs(v, T, D, heads, dtype)
  local exact, what = {}, ("%s, %d tokens, %d wide, %s"):format(name, T, D,
                                                                dtype)
  for n, t in pairs(x) do exact[n] = t:to "float64" end
  x = on_gpu(x)
  exact.cu_seqlens, x.cu_seqlens = cu, cu
  local grad, again = v:backward(x), v:backward(x)
  for n, g in pairs(v:reference_backward(exact)) do
    if n == "doc" then                  -- what is compared has no slope
      expect(grad[n]:to "cpu":maxabs() == 0, "%s: d_doc is not 0", what)
    elseif n ~= "initial_state" then
      local e = relative(grad[n], g)
      expect(e <= limits[dtype], "%s: d_%s is off by %.1e", what, n, e)
      expect((grad[n]:to "cpu" - again[n]:to "cpu"):maxabs() == 0,
             "%s: d_%s changes", what, n)
    end
  end
  local dy = x.dy
  x.dy, exact.dy = nil, nil
  local e = relative(v:forward(x), v:reference(exact))
  expect(e <= limits[dtype], "%s: y is off by %.1e", what, e)
  local y, _, saved = v:forward(x, { save = true })
  local from = v:backward { saved = saved, dy = dy }
  for _, n in ipairs { "q", "k", "v" } do
    expect((grad[n]:to "cpu" - from[n]:to "cpu"):maxabs() == 0,
           "%s: d_%s from what was saved differs", what, n)
  end
end

-- Whatever is in one sequence, others are what they were.
local function alone()
  local v, T = flin.variant { name = "alone", normalise = "softmax" }, 150
  local x = inputs(v, T, 64, 2, "bfloat16")
  local dy = x.dy
  local function run(poisoned)
    local y = {}
    for n, t in pairs(x) do
      local c = t:to "float32"
      if poisoned then c:narrow(2, 100, 51):fill(0 / 0) end
      y[n] = c:to "bfloat16":to "cuda"
    end
    y.cu_seqlens = { 0, 99, T }
    local grad = v:backward(y)
    y.dy = nil
    return v:forward(y), grad
  end
  local a, da = run(false)
  local b, db = run(true)
  expect((a:narrow(2, 1, 99):to "cpu" - b:narrow(2, 1, 99):to "cpu"):maxabs()
         == 0, "another sequence's nan is in y")
  for n, g in pairs(da) do
    if n ~= "initial_state" then
      expect((g:narrow(2, 1, 99):to "cpu" - db[n]:narrow(2, 1, 99):to "cpu")
             :maxabs() == 0, "another sequence's nan is in d_%s", n)
    end
  end
end

-- The way back in a block's memory of so many bytes, both ways: the gradients,
-- the same bits each time.
local function ways(name, T, K, V, dtype, cu)
  if only and not only[name] then return end
  local def = { name = name }
  for k, x in pairs(variants[name]) do def[k] = x end
  local v = flin.variant(def)
  local x = inputs(v, T, K, 1, dtype)
  x.v = flin.randn({ 1, T, 1, V }, { seed = 5 }):to(dtype)
  x.dy = flin.randn({ 1, T, 2, V }, { seed = 6 }):to(dtype)
  local exact = {}
  for n, t in pairs(x) do exact[n] = t:to "float64" end
  exact.cu_seqlens = cu
  local truth = v:reference_backward(exact)
  x = on_gpu(x)
  x.cu_seqlens = cu
  for _, way in ipairs { "blocks", "tiles" } do
    for _, cache in ipairs { 3000, 12000, 100000 } do
      x.way, x.cache = way, cache
      local what <const> = ("%s, %d tokens, %d and %d wide, %s, %s in %d bytes")
                           :format(name, T, K, V, dtype, way, cache)
      local grad, again = v:backward(x), v:backward(x)
      for n, g in pairs(truth) do
        if n ~= "initial_state" and n ~= "d_doc" and n ~= "doc" then
          local e = relative(grad[n], g)
          expect(e <= limits[dtype], "%s: d_%s is off by %.1e", what, n, e)
          expect((grad[n]:to "cpu" - again[n]:to "cpu"):maxabs() == 0,
                 "%s: d_%s changes", what, n)
        end
      end
    end
  end
end

if large then
  for name in pairs(variants) do
    ways(name, 700, 80, 48, "float32", { 0, 1, 1, 300, 428, 700 })
    ways(name, 700, 160, 192, "bfloat16")
    for _, D in ipairs { 64, 128 } do
      check(name, 1000, D, 1, "bfloat16")
      check(name, 700, D, 2, "float16", { 0, 1, 1, 300, 428, 700 })
    end
    check(name, 300, 48, 1, "float32", { 0, 100, 300 })
    check(name, 300, 96, 1, "bfloat16")
  end
else
  ways("causal", 90, 20, 12, "float32", { 0, 1, 1, 61, 90 })
  ways("window", 130, 16, 24, "bfloat16")
  ways("many_sinks", 260, 12, 8, "float32")
  ways("capped", 70, 20, 12, "float32")
  ways("forgetting", 80, 12, 20, "float32", { 0, 30, 30, 80 })
  ways("alibi", 70, 12, 20, "float16")
  ways("coupled", 70, 20, 12, "float32", { 0, 30, 30, 70 })
  ways("both_ways", 70, 12, 20, "float32", { 0, 30, 30, 70 })
  ways("near_both_ways", 150, 12, 20, "float32")
  for _, name in ipairs { "documents", "coupled" } do
    check(name, 70, 20, 1, "float32", { 0, 30, 30, 70 })
  end
  check("of_keys", 70, 20, 1, "float32", { 0, 30, 30, 70 })
  check("of_keys", 70, 64, 2, "bfloat16")
  check("of_values", 70, 20, 1, "float32", { 0, 30, 30, 70 })
  check("of_values", 50, 100, 2, "float32")
  check("of_both", 45, 12, 1, "float32", { 0, 20, 20, 45 })
  check("like_documents", 70, 64, 1, "bfloat16")
  check("sinks", 90, 64, 2, "float16", { 0, 1, 1, 90 })
  -- rows that the first keys have, in parts
  check("sinks", 600, 64, 2, "bfloat16", { 0, 1, 1, 570, 600 })
  check("sinks", 400, 20, 1, "float32")
  check("many_sinks", 500, 64, 1, "bfloat16")
  check("capped", 70, 64, 2, "bfloat16")
  check("forgetting", 140, 64, 1, "bfloat16", { 0, 40, 40, 140 })
  check("both_ways", 150, 64, 1, "bfloat16", { 0, 10, 10, 150 })
  check("near_both_ways", 300, 64, 2, "bfloat16")
  check("both_ways", 70, 20, 1, "float32", { 0, 30, 30, 70 })
end
if not only then alone() end

suite.finish()
