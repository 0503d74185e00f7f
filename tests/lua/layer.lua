-- flin.layer: the language, the truth token by token, and the parts beside it:
-- forward, backward, decoding.
local flin = require "flin"

local count = require "support.count"
local check <const> = count.check
local dot = flin.dot

local function apart(a, b)
  return (a - b):maxabs() / math.max(b:maxabs(), 1e-30)
end

local function refused(name, text, help, f, ...)
  local ok, e = pcall(f, ...)
  e = tostring(e)
  check(name, not ok and e:find(text, 1, true)
        and (not help or e:find("help: " .. help, 1, true)), e)
end

-- Against the float64 step, and that against differences.
local function holds(name, layer, options, limit)
  local c = layer:check(options)
  check(name, c.worst < (limit or 5e-6), tostring(c))
end

local function grounded(name, layer, sizes)
  local d = layer:gradcheck(sizes)
  check(name .. ": differences", d.worst < 5e-5, tostring(d))  -- of float32
end

-- ---- every mixing rule, in a layer as it is by itself ----

local function around(v)
  local input, weight = {}, {}
  for _, i in ipairs(v.inputs) do
    local domain = i.domain ~= "normal" and " : " .. i.domain or ""
    if i.axes:find "^t" then
      input[i.name] = i.axes:gsub("^t", "t h") .. domain
    else
      weight[i.name] = "h " .. i.axes .. domain
    end
  end
  return flin.layer {
    name = v.name, input = input, weight = weight,
    forward = function (x, w)
      local arguments = {}
      for name in pairs(input) do arguments[name] = x[name] end
      for name in pairs(weight) do arguments[name] = w[name] end
      return v(arguments)
    end
  }
end

for name, v in pairs(flin.stdlib) do
  local layer = around(v)
  holds(name, layer, { B = 2, T = 37, h = 2, size = 4, chunk = 16 }, 2e-5)
  local x = layer:random { B = 1, T = 20, h = 2, size = 4, seed = 3 }
  local y, state = layer:reference(x)
  local y1, state1 = v:reference(x)
  check(name .. ": the truth is the variant's", apart(y, y1) < 1e-12)
  for s, t in pairs(state1) do
    check(name .. ": state " .. s, apart(state[name .. "_" .. s], t) < 1e-12)
  end
end

-- ---- layers of the library ----

local small = { B = 2, T = 40, d = 6, h = 2, k = 4, v = 3, chunk = 16 }
for name, layer in pairs(flin.layers) do
  holds(name, layer, small, 1e-4)
  holds(name .. ", packed", layer, { cu_seqlens = { 0, 5, 5, 40 }, size = 4,
                                     h = 2 }, 1e-4)
  grounded(name, layer, { B = 1, T = 6, d = 5, h = 2, k = 3, v = 4 })
end
check("bfloat16", flin.layers.gla:check { T = 40, size = 4, h = 2,
  dtype = "bfloat16", backward = false }.worst < 1e-2)

-- ---- products ----

local function product(input, weight, axes)
  local layer = flin.layer {
    input = { x = input }, weight = { W = weight },
    forward = function (x, w) return dot(x.x, w.W, axes) end
  }
  local options = { T = 21 }
  for axis, size in pairs { a = 3, b = 4, c = 5, d = 2, e = 6 } do
    options[axis] = (input .. weight):find(axis) and size
  end
  holds(("dot(%s; %s; %s)"):format(input, weight, axes), layer, options)
end

product("t a", "a b")                   -- a matrix
product("t a", "b a")                   -- its transpose
product("t a b", "a b c")               -- summed over two
product("t a b", "c b a")
product("t a b", "d b e a")
product("t a b", "b c")                 -- rows beside the tokens
product("t b a", "b c")                 -- which lie behind what is summed
product("t a b", "a b c", "b")          -- a matrix for each a
product("t b a", "c a b", "b")
product("t a b c", "d a b", "b")        -- and rows beside them
product("t b c a", "e d a b", "b")

-- Large enough for blocks and threads; the bits are the same for any number.
local wide = flin.layer {
  input = { x = "t d" }, weight = { U = "d e", V = "e d" },
  forward = function (x, w)
    return x.x + dot(flin.silu(dot(x.x, w.U)), w.V)
  end
}
holds("wide", wide, { B = 1, T = 300, d = 130, e = 270, backward = false },
      1e-5)
local x = wide:random { B = 1, T = 300, d = 130, e = 270 }
local dy = flin.randn({ 1, 300, 130 }, { seed = 5 })
local function of_threads(n)
  local call = { x = x.x, U = x.U, V = x.V, threads = n }
  local y = wide:forward(call)
  call.dy = dy
  return y, wide:backward(call)
end
local y1, d1 = of_threads(1)
local y2, d2 = of_threads(2)
check("threads: y", (y1 - y2):maxabs() == 0)
check("threads: gradients", (d1.U - d2.U):maxabs() == 0
      and (d1.x - d2.x):maxabs() == 0)
local true_d = wide:reference_backward { x = x.x:narrow(2, 1, 40), U = x.U,
  V = x.V, dy = dy:narrow(2, 1, 40) }
local some_d = wide:backward { x = x.x:narrow(2, 1, 40), U = x.U, V = x.V,
                               dy = dy:narrow(2, 1, 40) }
check("wide: gradients", apart(some_d.U, true_d.U) < 1e-5
      and apart(some_d.x, true_d.x) < 1e-5)

-- Tensors that lie otherwise, of other types.
local turned = x.U:transpose(1, 2):contiguous():transpose(1, 2)
check("strided weight", apart(wide:forward { x = x.x, U = turned, V = x.V },
                              y1) < 1e-6)
check("bfloat16 weight", apart(wide:forward {
  x = x.x, U = x.U:to "bfloat16", V = x.V
}, wide:forward { x = x.x, U = x.U:to("bfloat16"):to "float32", V = x.V })
  < 1e-6)

-- ---- convolutions ----

local conv = flin.layer {
  input = { x = "t h k" }, weight = { c = "h k w" },
  forward = function (x, w) return flin.conv(x.x, w.c) end
}
for taps = 1, 5 do
  holds("conv of " .. taps, conv, { T = 23, h = 2, k = 3, w = taps,
                                    chunk = 8 })
end
grounded("conv", conv, { T = 9, h = 2, k = 3, w = 4 })
local c = conv:random { B = 1, T = 9, h = 1, k = 1, w = 3, dtype = "float64" }
local rows, taps = c.x:totable()[1], c.c:totable()[1][1]
local y, state = conv:reference(c)
for t, row in ipairs(y:totable()[1]) do
  local want = 0
  for w = 1, 3 do
    local from = rows[t - 3 + w]
    want = want + taps[w] * (from and from[1][1] or 0)
  end
  check("conv, token " .. t, math.abs(row[1][1] - want) < 1e-12)
end
for w, kept in ipairs(state.conv_c:totable()[1][1][1]) do
  check("conv keeps its last tokens", kept == rows[9 - 3 + w][1][1])
end
holds("conv of part of the axes", flin.layer {
  input = { x = "t h k" }, weight = { c = "k w" },
  forward = function (x, w) return flin.conv(x.x, w.c) end
}, { T = 23, h = 2, k = 3, w = 4 })

-- ---- what is computed from weights ----

-- Numbers, weights and what is made of them where tokens are wanted: gradients
-- are sums over these.
local function beta(what, f)
  local l = flin.layer {
    input = { k = "t h k", v = "t h v" }, weight = { b = "h", s = "" },
    forward = function (x, w)
      local k = flin.unit_norm(x.k, "k")
      return flin.stdlib.deltanet { q = k, k = k, v = x.v, beta = f(w) }
             * w.s * w.b
    end
  }
  holds("beta is " .. what, l, { T = 20, h = 2, k = 4, v = 3, chunk = 8 })
  holds("packed, beta is " .. what, l, { cu_seqlens = { 0, 3, 20 }, h = 2,
                                         k = 4, v = 3 })
  grounded("beta is " .. what, l, { T = 6, h = 2, k = 3, v = 2 })
end

beta("a number", function () return 0.5 end)
beta("a weight", function (w) return w.b end)
beta("computed", function (w) return flin.sigmoid(w.b) * w.s end)
holds("a decay of a weight", flin.layer {
  input = { k = "t h k", v = "t h v" }, weight = { a = "h" },
  forward = function (x, w)
    local g = -flin.softplus(w.a)
    return flin.stdlib.lightning { q = x.k, k = x.k, v = x.v, g = g }
         + flin.stdlib.simple_gla { q = x.k, k = x.k, v = x.v, g = g }
  end
}, { T = 20, h = 2, k = 4, v = 3 }, 5e-5)
holds("matrices and taps made of weights", flin.layer {
  input = { x = "t d" }, weight = { W = "d e", c = "d w" },
  forward = function (x, w)
    local W = flin.l2norm(w.W, "d")
    return dot(flin.tanh(dot(flin.conv(x.x, flin.tanh(w.c)), W)), W)
         + flin.sum(w.W, "e")
  end
}, { B = 1, T = 20, d = 5, e = 3, w = 3 })

-- ---- decoding ----

local layer = flin.layers.gated_deltanet
local all = layer:random { B = 2, T = 7, d = 6, h = 2, k = 4, v = 3, w = 4 }
local whole, left = layer:forward(all)
local state
for t = 1, 7 do
  local one = {}
  for name, tensor in pairs(all) do one[name] = tensor end
  one.x = all.x:narrow(2, t, 1)
  one.state, one.inplace = state, state ~= nil
  local token
  token, state = layer:step(one)
  check("decoding", apart(token, whole:narrow(2, t, 1)) < 1e-5)
end
for name, tensor in pairs(left) do
  check("state " .. name .. " after decoding", apart(state[name], tensor)
        < 1e-5)
end
all.initial_state, all.T = left, nil
check("goes on from a state", apart(layer:forward(all),
                                    layer:reference(all)) < 1e-5)

-- ---- what a layer may be ----

holds("several rules, values and weights used again", flin.layer {
  input = { x = "t d" },
  weight = { A = "d h k", B = "d h v", C = "h v d", c = "d w", s = "" },
  forward = function (x, w)
    local u = flin.rms_norm(flin.conv(x.x, w.c), "d")
    local k, v = flin.unit_norm(dot(u, w.A), "k"), dot(u, w.B)
    local y = flin.stdlib.linear { q = k, k = k, v = v }
    local z = flin.stdlib.deltanet {
      q = k, k = k, v = y, beta = flin.sigmoid(flin.sum(v, "v"))
    }
    local r = x.x + dot(y + z, w.C) * w.s
    return r + dot(flin.layer_norm(dot(r, w.B), "v"), w.C)
  end
}, { T = 37, d = 5, h = 2, k = 3, v = 4, w = 3, chunk = 16 }, 1e-4)
holds("one rule twice, in one expression", flin.layer {
  input = { k = "t h k", v = "t h v" }, weight = { c = "h v w" },
  forward = function (x, w)
    local linear, conv = flin.stdlib.linear, flin.conv
    local y = linear { q = x.k, k = x.k, v = x.v }
    local z = linear { q = x.k, k = flin.silu(x.k), v = x.v }
    return y * z + conv(x.v, w.c) * conv(y, w.c)
  end
}, { T = 20, h = 2, k = 3, v = 4, w = 3 })
local shift = flin.layer {
  input = { x = "t d" }, weight = { m = "d", W = "d e" },
  forward = function (x, w)
    local prev = flin.prev
    return dot(prev(x.x) * prev(prev(flin.silu(x.x))) + w.m * x.x, w.W)
  end
}
holds("the token before", shift, { T = 20, d = 3, e = 2 })
grounded("the token before", shift, { T = 6, d = 3, e = 2 })
check("its states", shift.states[1].name == "prev_x"
      and shift.states[2].name == "prev2_x" and shift.states[3].axes == "d")
for _, axes in ipairs { { "t k", "t k", "t h v" }, { "t k", "t h k", "t v" },
                        { "t h k", "t k", "t v" } } do
  holds("heads shared: " .. table.concat(axes, ", "), flin.layer {
    input = { q = axes[1], k = axes[2], v = axes[3] },
    weight = { g = "h : log_decay" },
    forward = function (x, w)
      return flin.stdlib.lightning { q = x.q, k = x.k, v = x.v, g = w.g }
    end
  }, { T = 20, size = 4, h = 3 })
end
holds("norms over heads", flin.layer {
  input = { x = "t h v" }, weight = { n = "h v" },
  forward = function (x, w)
    return flin.layer_norm(x.x) * w.n
         + flin.mean(flin.rms_norm(x.x, "v"), "h v")
  end
}, { T = 20, h = 3, v = 4 })
check("a number for a weight without axes", flin.layer {
  input = { x = "t d" }, weight = { s = "" },
  forward = function (x, w) return x.x * w.s end
}:forward { x = flin.ones(1, 2, 3), s = 2.5 }:max() == 2.5)
check("no tokens", layer:forward {
  x = flin.zeros(2, 0, 6), Wq = all.Wq, Wk = all.Wk, Wv = all.Wv, Wb = all.Wb,
  Wa = all.Wa, Wg = all.Wg, cq = all.cq, ck = all.ck, cv = all.cv,
  A_log = all.A_log, dt = all.dt, norm = all.norm, Wo = all.Wo
}.count == 0)
-- Random weights make sums as large as what is summed, over one axis or two.
do
  local mixed = flin.layer {
    name = "mixed", input = { x = "t d" },
    weight = { W = "d h k", V = "h k d" },
    forward = function (x, w) return dot(dot(x.x, w.W), w.V) end,
  }
  for _, d in ipairs { 16, 256 } do
    local y = mixed:forward(mixed:random { T = 20, d = d, h = 4, k = d })
    local size = ((y * y):sum() / y.count) ^ 0.5
    check("random weights, " .. d, size > 0.7 and size < 1.4, tostring(size))
  end
end
check("H says how many heads", flin.layers.gla:random { T = 2, H = 3,
  size = 4 }.Wq.shape[2] == 3)

local form = layer.form
check("form: parts", form:find("v1 [t h k] = dot(x, Wq)", 1, true)
      and form:find("gated_deltanet(", 1, true)
      and form:find("convolution along tokens, in chunks", 1, true)
      and not form:find("token by token", 1, true), form)
check("describe: no heads beside the axes", tostring(layer:describe())
      :find("x        [B, T, D]", 1, true), tostring(layer:describe()))
check("validation", not pcall(layer.forward, layer, {
  validate = true, x = all.x * 1e30, Wq = all.Wq * 1e30, Wk = all.Wk,
  Wv = all.Wv, Wb = all.Wb, Wa = all.Wa, Wg = all.Wg, cq = all.cq,
  ck = all.ck, cv = all.cv, A_log = all.A_log, dt = all.dt, norm = all.norm,
  Wo = all.Wo }))

-- ---- what is refused ----

local function defined(input, weight, forward)
  return function ()
    return flin.layer { input = input, weight = weight, forward = forward }
  end
end

local shapes = { Wq = all.Wq:transpose(1, 2) }
for name, tensor in pairs(all) do shapes[name] = shapes[name] or tensor end
refused("a weight of the wrong shape", "axis 'd' is 6 in", nil,
        layer.forward, layer, shapes)
shapes.Wq, shapes.Wo = all.Wq, flin.zeros(6)
refused("a weight of the wrong rank", "Wo has shape [6], but [h, v, d] is "
        .. "wanted", nil, layer.forward, layer, shapes)
refused("no weight", "tensor W is missing; [d, e] is wanted", nil, function ()
  defined({ x = "t d" }, { W = "d e" }, function (x, w)
    return dot(x.x, w.W)
  end)():forward { x = all.x }
end)
refused("no such weight", "w.Wz: there is no weight 'Wz'", "weights: W",
        defined({ x = "t d" }, { W = "d e" }, function (x, w)
  return dot(x.x, w.Wz)
end))
for _, method in ipairs { "io", "source", "compile", "dump", "map" } do
  refused("no " .. method, "there is no v:" .. method .. " of layers yet",
          "v.form shows its parts", function ()
    return layer[method](layer, method == "source" and "cuda"
                         or method == "dump" and "P" or {})
  end)
end

-- ---- gradients of weights, added up ----

do
  local layer = flin.layers.gla
  local at = { B = 2, T = 9, d = 6, h = 2, k = 4, v = 3, r = 2 }
  local function call(seed, more)
    at.seed = seed
    local x = layer:random(at)
    at.seed = 1
    for name, w in pairs(layer:random(at)) do
      x[name] = name == "x" and x[name] or w:to "bfloat16"
    end
    x.dy = x.x
    for name, value in pairs(more or {}) do x[name] = value end
    return x
  end
  local into, sum = {}, {}
  for name, w in pairs(call(1)) do
    if name ~= "x" and name ~= "dy" then
      sum[name] = flin.randn(w.shape):to "float64"
      into[name] = sum[name]:to "float32"
    end
  end
  for seed = 1, 3 do
    local d = layer:backward(call(seed, { into = into }))
    for name, g in pairs(layer:reference_backward(call(seed))) do
      if sum[name] then
        sum[name] = sum[name] + g
        check("added up: what comes back", apart(d[name], into[name]) == 0)
      end
    end
  end
  for name, want in pairs(sum) do
    check("added up: " .. name, apart(into[name]:to "float64", want) < 2e-5,
          tostring(apart(into[name]:to "float64", want)))
  end
  local function add(into)
    return function () layer:backward(call(1, { into = into })) end
  end
  local wide = flin.zeros(into.Wq.shape)
  refused("into: an input", "x: gradients are added up of weights",
          "float32 tensors, for weights",
          add { x = flin.zeros { 2, 9, 6 } })
  refused("into: bfloat16", "Wq: gradients are added up in float32, and this "
          .. "tensor is bfloat16", "float32 tensors, for weights",
          add { Wq = wide:to "bfloat16" })
  refused("into: a shape", "Wq has shape", nil, add { Wq = flin.zeros { 2 } })
  refused("into: no such weight", "into: there is no weight 'Wp'", nil,
          add { Wp = wide })
  refused("into: no tensor", "into.Wq must be a tensor", nil, add { Wq = 1 })
  refused("into: a variant", "g: gla gives gradients, and adds none up: layers "
          .. "do", "add them up behind the call", function ()
    local v = flin.stdlib.gla
    local x = v:random { T = 4, size = 4 }
    x.dy, x.into = x.v, { g = flin.zeros(x.g.shape) }
    v:backward(x)
  end)
  refused("into: forward", "'into' is another call's", nil, function ()
    local x = call(1, { into = into })
    x.dy = nil
    layer:forward(x)
  end)
end

local plan = layer:plan { d = 64, h = 2, k = 32, v = 32, w = 4, T = 128,
                          plan = "separate" }
check("plan: parts", #plan.parts == 17 and tostring(plan):find("rows", 1, true)
      and tostring(plan):find("product 128 x 64 x 64", 1, true), tostring(plan))
check("plan: backward", layer:plan { backward = true }.flops
      > 2 * layer:plan().flops)
-- What a residual gives back is what came: nothing computes it.
local residual = flin.layer {
  name = "residual", input = { x = "t d" }, weight = { W = "d e", V = "e d" },
  forward = function (x, w) return dot(dot(x.x, w.W), w.V) + x.x end,
}
check("residual: gradients", residual:check { T = 9, size = 4 }.worst < 1e-5)
local last = residual:plan { d = 64, e = 32 }.parts[3]
check("residual: the product adds", last.by:find "^in the product of"
      and last.flops == 0, last.by)
-- A layer called on values is its forward function, states and all: a block of
-- a norm, a layer and what goes on beside both.
local mixed = flin.layer {
  name = "mixed", input = { x = "t d" },
  weight = { W = "d e", V = "e d", taps = "e w" },
  forward = function (x, w)
    return dot(flin.silu(flin.conv(dot(x.x, w.W), w.taps)), w.V)
  end,
}
local block = flin.layer {
  name = "block", input = { x = "t d" },
  weight = { before = "d", W = "d e", V = "e d", taps = "e w" },
  forward = function (x, w)
    local h = flin.rms_norm(x.x, "d") * w.before
    return x.x + mixed { x = h, W = w.W, V = w.V, taps = w.taps }
  end,
}
local alone = flin.layer {
  name = "alone", input = { x = "t d" },
  weight = { before = "d", W = "d e", V = "e d", taps = "e w" },
  forward = function (x, w)
    local h = flin.rms_norm(x.x, "d") * w.before
    return x.x + dot(flin.silu(flin.conv(dot(h, w.W), w.taps)), w.V)
  end,
}
check("a layer in a layer: the same", block.form:gsub("block", "alone")
      == alone.form, block.form)
check("a layer in a layer: right", block:check { T = 40, size = 4 }.worst
      < 1e-4)
-- A norm's number is one value for all that read it; heads do not each sum up a
-- row that they share.
local normed = flin.layer {
  name = "normed", input = { x = "t d" },
  weight = { Wq = "d h k", Wv = "d h v", Wo = "h v d" },
  forward = function (x, w)
    local h = flin.rms_norm(x.x, "d")
    local y = flin.stdlib.linear { q = dot(h, w.Wq), k = dot(h, w.Wq),
                                   v = dot(h, w.Wv) }
    return x.x + dot(flin.rms_norm(y, "h v"), w.Wo)
  end,
}
local _, sums = normed.form:gsub("sum%(square%(x%)%)", "")
check("normed: its number once", sums == 1
      and normed.form:find("v1 [t] = rsqrt", 1, true), normed.form)
check("normed: right", normed:check { T = 70, size = 4, h = 2 }.worst < 1e-4)
-- What is behind a call or before it is in its step: norms and gates of a head
-- are, products and what sums over heads never.
local LEFT <const> = { gated_deltanet = 11, gla = 8, kda = 13, mamba2 = 11,
                       rwkv7 = 19 }
for name, l in pairs(flin.layers) do
  local found = l:plan { plan = "fused" }
  check(name .. ": parts that stay", #found.parts == LEFT[name],
        tostring(found))
  local plans = found.plans
  check(name .. ": prices of all plans", plans.fused.predicted
        == found.predicted and plans.separate.parts > LEFT[name]
        and plans.cheapest.parts <= plans.separate.parts, tostring(found))
  check(name .. ": nothing moves more", plans.fused.bytes
        < plans.separate.bytes, tostring(found))
end
-- The token before is seen by each that reads it, and is one state still.
local twice = flin.layer {
  name = "twice", input = { x = "t d" },
  weight = { a = "d", b = "d", V = "d e", W = "d e" },
  forward = function (x, w)
    local before = flin.prev(x.x)
    return dot(x.x + w.a * before, w.V) + dot(x.x * before * w.b, w.W)
  end
}
local both = { d = 24, e = 8, plan = "fused" }
check("twice: nothing but what reads it", #twice:plan(both).parts == 5
      and #twice.states == 1, tostring(twice:plan(both)))
for _, more in ipairs { {}, { cu_seqlens = { 0, 3, 3, 40, 50 } } } do
  for key, value in pairs(both) do more[key] = value end
  check("twice: checked", twice:check(more).worst < 2e-5,
        tostring(twice:check(more)))
end
-- Products with weights of a head in a rule's step, where they fit there.
local whole = flin.layer {
  name = "whole", input = { x = "t d" },
  weight = { Wk = "d k", Wv = "d h v", Wg = "d h", Wz = "d h v", a = "h" },
  forward = function (x, w)
    local y = flin.stdlib.simple_gla {
      q = flin.unit_norm(flin.dot(x.x, w.Wk), "k"), v = flin.dot(x.x, w.Wv),
      k = flin.tanh(flin.dot(x.x, w.Wk)),
      g = flin.logsigmoid(flin.dot(x.x, w.Wg) + w.a)
    }
    return flin.rms_norm(y, "v") * flin.silu(flin.dot(x.x, w.Wz))
  end
}
local in_one = { d = 32, h = 2, k = 16, v = 16, plan = "whole" }
check("plan: whole", #whole:plan(in_one).parts == 1, tostring(
      whole:plan(in_one)))
for _, more in ipairs { {}, { cu_seqlens = { 0, 3, 3, 40, 50 } },
                        { dtype = "bfloat16" } } do
  for key, value in pairs(in_one) do more[key] = value end
  local limit <const> = more.dtype and 5e-2 or 2e-5
  check("plan: whole, checked", whole:check(more).worst < limit,
        tostring(whole:check(more)))
end
in_one.d, in_one.machine = 8192, "h200"
refused("plan: whole, too large", "the weights of a head that would be in "
        .. "the kernel of simple_gla take 802818 bytes, and h200 has 232448",
        'plan = "fused"', function () whole:plan(in_one) end)
refused("plan: whole, without a product", 'no product of one head is read',
        'plan = "fused"', function ()
  flin.layer {
    name = "none", input = { x = "t d" }, weight = { W = "d e" },
    forward = function (x, w)
      return flin.dot(flin.prev(x.x), w.W)
    end
  }:plan { plan = "whole" }
end)
refused("plan: a word", "plan must be \"separate\", \"fused\", \"whole\", ",
        "leave it out", function () layer:plan { plan = "one" } end)
refused("plan: of a variant", "plan: gla is no layer", nil, function ()
  local x = flin.stdlib.gla:random { T = 4, size = 4 }
  x.plan = "fused"
  flin.stdlib.gla:forward(x)
end)
check("plan: the CPU's", not tostring(layer:plan { machine = "cpu" })
      :find("rows", 1, true))
local joint = { d = 2048, h = 16, k = 128, v = 128, T = 64, beside = true }
check("plan: weights beside one another", tostring(layer:plan(joint))
      :find("product 64 x 6176 x 2048, 5 weights", 1, true),
      tostring(layer:plan(joint)))
joint.beside = nil
check("plan: no copy for a few tokens", not tostring(layer:plan(joint))
      :find("copied", 1, true))
joint.T = 8192
check("plan: a copy for many", tostring(layer:plan(joint))
      :find("product 8192 x 6176 x 2048, 5 weights copied", 1, true))
for name, l in pairs(flin.layers) do    -- all that carries no matrix
  local by = {}
  for _, part in ipairs(l:plan().parts) do
    if part.by:find "chunks" then by[#by + 1] = part.name end
  end
  check(name .. ": what runs by chunks", #by == 1, table.concat(by, "\n"))
end

-- A term of a gradient that has more factors than are listed, of which one is
-- a product: it is taken out whole.
do
  local layer = flin.layer {
    name = "factors", input = { x = "t d" },
    weight = { W = "d e", c = "w e", b = "e" },
    forward = function (x, w)
      local h = flin.silu(flin.conv(flin.tanh(dot(x.x, w.W)), w.c))
      local y = flin.unit_norm(h + 3 * w.b)
      return 0.3 * flin.mean(flin.tanh(y - 0.3)) + x.x
    end
  }
  holds("factors", layer, { B = 2, T = 13, d = 3, e = 2, w = 3, chunk = 4,
                            plan = "fused" })
end

count.finish()
