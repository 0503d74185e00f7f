-- Layers whose states are carried entry by entry (gated sums of vectors, of
-- numbers), on the CPU or ("cuda") a GPU, where kernels over rows have them and
-- the product that they read is made within: against the float64 step, in
-- pieces and not, packed or not; the same bits each time, and from what was
-- saved; what is no number stays in its sequence. Every fourth case: cuda few.
local flin = require "flin"
local exp <const>, dot <const>, silu <const> = flin.exp, flin.dot, flin.silu
local where <const>, few <const> = ...
local cuda <const> = where == "cuda"
local passed, failed = 0, 0

local function check(name, ok, what)
  if ok then passed = passed + 1 return end
  failed = failed + 1
  print("FAIL " .. name, what)
end

-- One state; two, of which one is a number; a residual; a constant's gradient.
local vectors <const> = flin.variant {
  name = "gated_sum", input = { v = "t v", k = "t", g = "t : log_decay" },
  state = { s = "v" },
  step = function (x, s)
    local new <const> = exp(x.g) * s.s + x.k * x.v
    return { s = new }, new
  end,
}
local two <const> = flin.variant {
  name = "weighed_mean",
  input = { v = "t v", k = "t", g = "t v : log_decay", a = "v" },
  state = { s = "v", n = "" },
  step = function (x, s)
    local w <const> = flin.sigmoid(x.k)
    local new <const> = exp(x.g) * s.s + w * x.v
    local n <const> = 0.5 * s.n + w
    return { s = new, n = n }, (s.s + x.a * new) / (1 + n)
  end,
}
local layers <const> = {
  one = flin.layer {
    name = "one", input = { x = "t d", k = "t", g = "t", gate = "t v" },
    weight = { W = "d v" },
    forward = function (x, w)
      local y <const> = vectors { v = dot(x.x, w.W), k = x.k,
                                  g = flin.logsigmoid(x.g) }
      return y * silu(x.gate)
    end,
  },
  two = flin.layer {
    name = "two", input = { x = "t d", k = "t", g = "t v", r = "t v" },
    weight = { W = "d v", a = "v" },
    forward = function (x, w)
      local y <const> = two { v = silu(dot(x.x, w.W)), k = x.k, a = w.a,
                              g = flin.logsigmoid(x.g) }
      return flin.tanh(y) + x.r
    end,
  },
  heads = flin.layer {
    name = "heads", input = { x = "t d", k = "t h", g = "t h" },
    weight = { W = "d h v", U = "d h v" },
    forward = function (x, w)
      local y <const> = vectors { v = dot(x.x, w.W), k = x.k,
                                  g = flin.logsigmoid(x.g) }
      return y * silu(dot(x.x, w.U))
    end,
  },
}

local limit <const> = { float32 = 5e-6, bfloat16 = 3e-2 }
local held = 0
local function holds(name, case, dtype, plan)
  held = held + 1
  if few and held % 4 ~= 2 then return end
  case.backend, case.dtype = cuda and "cuda" or "cpu", dtype
  case.plan = plan
  local ok <const>, found <const> = pcall(layers[name].check, layers[name],
                                          case)
  check(("%s, d %d, v %d, T %d, %s, %s"):format(name, case.d, case.v, case.T,
        dtype, plan), ok and found.worst < limit[dtype],
        ok and found.worst or found)
end

-- Serial, in pieces, with pieces left over; rows of one lane to a warp;
-- products in one slab and in two, and those that rows do not make.
for _, size in ipairs { { 64, 64, 31 }, { 64, 64, 300 }, { 96, 40, 100 },
                        { 512, 8, 300 }, { 32, 128, 50 }, { 24, 200, 40 } } do
  holds("one", { B = 2, d = size[1], v = size[2], T = size[3] }, "bfloat16")
end
holds("one", { B = 2, d = 64, v = 64, T = 300 }, "float32")
holds("one", { B = 2, d = 64, v = 64, T = 1 }, "float32")
holds("one", { B = 2, d = 32, v = 24, T = 90 }, "float32", "separate")
local packed <const> = { B = 1, d = 64, v = 64, T = 130,
                         cu_seqlens = { 0, 1, 40, 40, 100, 130 } }
holds("one", packed, "bfloat16")
holds("one", packed, "float32", "fused")
holds("two", { B = 2, d = 64, v = 24, T = 90 }, "bfloat16")
holds("two", { B = 1, d = 32, v = 64, T = 80, cu_seqlens = { 0, 50, 50, 80 } },
      "float32")
holds("heads", { B = 2, d = 32, v = 16, h = 3, T = 70 }, "float32")

-- ---- tensors that live there ----

local function moved(x, dtype)
  local to <const> = {}
  for name, t in pairs(x) do
    local as <const> = flin.is_tensor(t) and t:to(dtype) or t
    to[name] = cuda and flin.is_tensor(t) and as:to "cuda" or as
  end
  return to
end
local function with(x, more)
  local to <const> = {}
  for name, t in pairs(x) do to[name] = t end
  for name, t in pairs(more) do to[name] = t end
  return to
end
local function same(a, b)
  return (a:to "cpu" - b:to "cpu"):maxabs() == 0
end

for name, layer in pairs(layers) do
  for _, dtype in ipairs { "float32", cuda and "bfloat16" or nil } do
    local sizes <const> = { B = 2, T = 150, d = 64, v = 32 }
    if name == "heads" then sizes.h = 2 end
    local x <const> = moved(layer:random(sizes), dtype)
    local y <const>, _, saved <const> = layer:forward(with(x, { save = true }))
    local d <const> = layer:backward(with(x, { dy = y }))
    local again <const> = layer:backward(with(x, { dy = y }))
    local kept <const> = layer:backward { saved = saved, dy = y }
    check(name .. ", " .. dtype .. ": y twice", same(y, layer:forward(x)))
    for what, t in pairs(d) do
      if flin.is_tensor(t) then
        check(name .. ", " .. dtype .. ": d_" .. what .. " twice",
              same(t, again[what]))
        check(name .. ", " .. dtype .. ": d_" .. what .. " from what was saved",
              same(t, kept[what]))
      end
    end
  end
end

-- Calls of other lengths have other kernels: pieces of 1 to 10 tokens.
if cuda and not few then
  for _, T in ipairs { 32, 300, 40, 260, 290 } do
    local x <const> = layers.one:random { B = 1, T = T, d = 32, v = 64 }
    local y <const> = layers.one:forward(moved(x, "bfloat16"))
    local right <const> = layers.one:reference(x)
    local off <const> = (y:to "cpu":to "float64" - right):maxabs()
                      / right:maxabs()
    check("T " .. T .. " after others", off < 3e-2, off)
  end
end

-- A sequence with what is no number before and behind one without.
local args <const> = layers.one:random { B = 1, T = 120, d = 64, v = 64 }
args.cu_seqlens = { 0, 40, 80, 120 }
local bad <const> = with(args, { k = args.k:clone() })
for t = 1, 120 do
  if t <= 40 or t > 80 then bad.k[{ 1, t }] = 0 / 0 end
end
local good_y <const> = layers.one:forward(moved(args, "float32"))
local bad_y <const> = layers.one:forward(moved(bad, "float32"))
local worst = 0
for t = 41, 80 do
  for i = 1, 64 do
    local off <const> = math.abs(good_y:to "cpu"[{ 1, t, i }]
                                 - bad_y:to "cpu"[{ 1, t, i }])
    worst = off <= worst and worst or off
  end
end
check("what is no number stays in its sequence", worst == 0, worst)

-- A plan that has the product in the rows' kernels says so.
local plan <const> = layers.one:plan { B = 4, T = 2048, d = 256, v = 64,
                                       machine = "h200", plan = "whole" }
check("the product is made within", #plan.parts == 1
      and plan.text:find "a product in them", plan.text)
check("it costs less than apart", plan.predicted
      < plan.plans.separate.predicted, plan.predicted)

print(("%d passed, %d failed"):format(passed, failed))
