-- Programs over rows: reductions along an axis of any length, cross-entropy
-- among them, on the CPU (or, "cuda", a GPU) and as the float64 step has them.
local flin = require "flin"
local cuda = ... == "cuda"
local passed, failed = 0, 0

local function check(name, ok, what)
  if ok then
    passed = passed + 1
  else
    failed = failed + 1
    print("FAIL " .. name, what)
  end
end

local function refused(name, text, f, ...)
  local ok, e = pcall(f, ...)
  check(name, not ok and tostring(e):find(text, 1, true), tostring(e))
end

-- Relative to the root of the mean square of what is right.
local function off(x, y)
  x, y = x:to "float64", y:to "float64"
  local e = x - y
  local all = (y * y):sum()
  return ((e * e):sum() / (all > 0 and all or 1)) ^ 0.5
end

local function to_gpu(args)
  local to = {}
  for name, x in pairs(args) do
    to[name] = cuda and flin.is_tensor(x) and x:to "cuda" or x
  end
  return to
end

-- Forward and backward against the float64 step, by the reference's numbers.
local function holds(name, layer, args, limit)
  local there = to_gpu(args)
  local y, _, saved = layer:forward(there, { save = true })
  local true_y = layer:reference(args)
  local dy = flin.randn(y.shape, { seed = 5 })
  local put = cuda and dy:to "cuda" or dy
  local e = off(y:to "cpu", true_y)
  check(name .. ": y", e <= limit, e)
  local d = layer:backward(there, { dy = put })
  local kept = layer:backward { saved = saved, dy = put }
  local true_d = layer:reference_backward(args, { dy = dy })
  for x, g in pairs(true_d) do
    if flin.is_tensor(g) then
      e = off(d[x]:to "cpu", g)
      check(name .. ": d_" .. x, e <= limit, e)
      check(name .. ": d_" .. x .. ", the same bits from what is saved",
            tostring(d[x]:to "cpu") == tostring(kept[x]:to "cpu")
            and off(d[x]:to "cpu", kept[x]:to "cpu") == 0)
    end
  end
end

local function labels(B, T, n)
  local rows = {}
  for b = 1, B do
    rows[b] = {}
    for t = 1, T do
      rows[b][t] = (b * 7919 + t * 104729) % n
    end
  end
  rows[1][1], rows[B][T] = 0, n - 1
  return flin.tensor(rows, { dtype = "int64" })
end

local entropy = flin.layer {
  name = "cross_entropy",
  input = { z = "t n", label = "t : index n" },
  forward = function (x)
    return flin.logsumexp(x.z, "n") - flin.pick(x.z, x.label, "n")
  end
}
local layers = {
  cross_entropy = { layer = entropy, args = function (n)
    return { z = 3 * flin.randn(2, 3, n, { seed = n }),
             label = labels(2, 3, n) }
  end },
  softmax = { layer = flin.layer {
    input = { z = "t n" },
    forward = function (x) return flin.softmax(x.z, "n") end
  } },
  amax = { layer = flin.layer {
    input = { z = "t n" },
    forward = function (x) return flin.amax(x.z, "n") * flin.sum(x.z, "n") end
  } },
  norm = { layer = flin.layer {
    input = { z = "t n" }, weight = { w = "n", s = "" },
    forward = function (x, w)
      return flin.rms_norm(x.z, "n") * w.w + flin.amax(x.z, "n") * w.s
    end
  }, args = function (n)
    return { z = flin.randn(2, 3, n, { seed = n }), s = flin.full({}, 0.5),
             w = flin.randn(n, { seed = 2 }) }
  end },
  several = { layer = flin.layer {       -- heads, and numbers between passes
    input = { z = "t h n", u = "t h" },
    forward = function (x)
      local p = flin.softmax(x.z * x.u, "n")
      return flin.layer_norm(p * x.z, "n") * flin.logsumexp(-x.z, "n")
    end
  }, args = function (n)
    return { z = flin.randn(2, 3, 2, n, { seed = n }),
             u = flin.randn(2, 3, 2, { seed = 1 }) }
  end },
}
for name, of in pairs(layers) do
  for _, n in ipairs(cuda and { of.args and 5000 or 33, 12 }
                     or { 1, 7, 33, 1000, 5000 }) do
    local args = of.args and of.args(n)
              or { z = flin.randn(2, 3, n, { seed = n }) }
    holds(name .. " of " .. n, of.layer, args, n == 1 and 2e-4 or 2e-5)
  end
end

-- A vocabulary, and one that is chunked elsewhere.
for _, n in ipairs { 32000, 256000 } do
  local z, label = 2 * flin.randn(1, 2, n, { seed = 3 }), labels(1, 2, n)
  local args = to_gpu { z = z, label = label }
  local y = entropy:forward(args)
  local e = off(y:to "cpu", entropy:reference { z = z, label = label })
  check("cross-entropy of " .. n, e < 1e-6, e)
  local dy = flin.ones(1, 2)
  local d = entropy:backward(args, { dy = cuda and dy:to "cuda" or dy })
  local true_d = entropy:reference_backward { z = z, label = label, dy = dy }
  e = off(d.z:to "cpu", true_d.z)
  check("its gradient", e < 1e-5, e)
end

-- Narrow types are read and written as they are; sums are float32's.
for _, dtype in ipairs { "bfloat16", not cuda and "float16" or nil } do
  local z = (2 * flin.randn(2, 3, 1000, { seed = 4 })):to(dtype)
  local label = labels(2, 3, 1000):to "int32"
  local args = to_gpu { z = z, label = label }
  local y = entropy:forward(args)
  local e = off(y:to "cpu", entropy:reference { z = z, label = label })
  check(dtype, e < 4e-3, e)
  local d = entropy:backward(args, { dy = to_gpu { dy = flin.ones(2, 3) }.dy })
  check(dtype .. ": d_z", d.z.dtype == dtype)
end

-- What ends float32's numbers, and equals.
local inf = math.huge
local function row(...)
  return to_gpu { z = flin.tensor { { { ... } } } }
end
local function number(layer, z) return layer:forward(z):to "cpu":max() end
local lse = flin.layer {
  input = { z = "t n" },
  forward = function (x) return flin.logsumexp(x.z, "n") end
}
local largest = flin.layer {
  input = { z = "t n" }, forward = function (x) return flin.amax(x.z, "n") end
}
local one = to_gpu { dy = flin.ones(1, 1) }.dy
local function gradient(layer, z)
  return layer:backward(z, { dy = one }).z:to "cpu":totable()[1][1]
end
local function same(x, y)
  for i = 1, #x do
    if x[i] ~= y[i] and math.abs(x[i] - y[i]) > 1e-6 then return false end
  end
  return #x == #y
end
check("-inf beside numbers", math.abs(number(lse, row(-inf, 1, -inf, 1))
                                      - 1 - math.log(2)) < 1e-6)
check("all -inf", number(lse, row(-inf, -inf, -inf)) == -inf)
check("all -inf: no gradient", same(gradient(lse, row(-inf, -inf)), { 0, 0 }))
check("1e9", number(lse, row(1e9, -1e9, 0)) == 1e9)
check("-1e9", math.abs(number(lse, row(-1e9, -1e9)) + 1e9) < 64)
check("its gradient", same(gradient(lse, row(1e9, -1e9, 0)), { 1, 0, 0 }))
check("inf", number(lse, row(inf, 1)) == inf)
local nan = number(lse, row(0 / 0, 1))
check("nan", nan ~= nan)
check("the largest of equals shares its gradient",
      same(gradient(largest, row(2, 5, 5, 1, 5)),
           { 0, 1 / 3, 1 / 3, 0, 1 / 3 }))
check("the largest", number(largest, row(-3, -2, -inf)) == -2)
check("no tokens", entropy:forward(to_gpu {
  z = flin.zeros(2, 0, 5), label = flin.zeros(2, 0, { dtype = "int64" })
}).count == 0)

-- A gradient over what it is of: the same bits, and no memory of its own.
for _, dtype in ipairs { "bfloat16", not cuda and "float32" or nil } do
  local z = (2 * flin.randn(2, 3, 1000, { seed = 6 })):to(dtype)
  local label, dy = labels(2, 3, 1000), flin.randn(2, 3, { seed = 7 })
  local args = to_gpu { z = z, label = label, dy = dy }
  local apart = entropy:backward(args).z
  local _, _, saved = entropy:forward(args.z and {
    z = args.z, label = args.label, save = true })
  local over = entropy:backward { saved = saved, dy = args.dy,
                                  inplace = { "z" } }
  check("in place, " .. dtype .. ": the tensor itself", over.z == args.z)
  check("in place, " .. dtype .. ": the same bits",
        off(over.z:to "cpu", apart:to "cpu") == 0)
  refused("in place, " .. dtype .. ": what was saved is gone",
          "z has been written to", entropy.backward, entropy,
          { saved = saved, dy = args.dy })
end

-- A gate, a layer of one step: over both at once, of any length.
local swiglu = flin.layer {
  name = "swiglu", input = { gate = "t n", up = "t n" },
  forward = function (x) return flin.silu(x.gate) * x.up end
}
for _, n in ipairs { 1, 33, 5000 } do
  local args = { gate = flin.randn(2, 3, n, { seed = 1 }),
                 up = flin.randn(2, 3, n, { seed = 2 }) }
  holds("swiglu of " .. n, swiglu, args, 1e-6)
  local there = to_gpu(args)
  there.dy = to_gpu { dy = flin.randn(2, 3, n, { seed = 3 }) }.dy
  local apart = swiglu:backward(there)
  there.inplace = { "gate", "up" }
  local over = swiglu:backward(there)
  for _, name in ipairs { "gate", "up" } do
    check("swiglu of " .. n .. ": d_" .. name .. " over " .. name,
          over[name] == there[name])
    check("swiglu of " .. n .. ": d_" .. name .. ", the same bits",
          off(over[name]:to "cpu", apart[name]:to "cpu") == 0)
  end
end
do      -- memory that something else lies in
  local args = to_gpu { gate = flin.randn(1, 2, 8), up = flin.randn(1, 2, 8),
                        dy = flin.randn(1, 2, 8) }
  local function over(inplace, with)
    local a = { inplace = inplace }
    for name, x in pairs(args) do a[name] = with[name] or x end
    return swiglu:backward(a)
  end
  refused("over up, which is gate", "up lies in the same memory", over,
          { "gate" }, { up = args.gate })
  refused("over dy", "dy lies in the same memory", over, { "up" },
          { dy = args.up })
  check("dy is gate, which stays", pcall(over, { "up" }, { dy = args.gate }))
end
-- On a GPU a weight's gradient is summed behind all passes, of z again.
do
  local weighed = flin.layer {
    input = { z = "t n" }, weight = { w = "n" },
    forward = function (x, w) return flin.rms_norm(x.z, "n") * w.w end
  }
  local args = to_gpu { z = flin.randn(2, 3, 40, { seed = 1 }),
                        w = flin.randn(40, { seed = 2 }),
                        dy = flin.randn(2, 3, 40, { seed = 3 }) }
  local apart = weighed:backward(args)
  args.inplace = { "z" }
  if cuda then
    refused("over what a sum over rows reads", "z is read again for a sum "
            .. "over rows", weighed.backward, weighed, args)
  else
    local over = weighed:backward(args)
    check("over z: d_w", off(over.w, apart.w) == 0)
    check("over z: d_z", off(over.z, apart.z) == 0)
  end
  local shared = flin.layer {
    input = { z = "t n", u = "t h n" },
    forward = function (x) return flin.logsumexp(x.z * x.u, "n") end
  }
  if not cuda then
    refused("over what several heads read", "several rows read the same "
            .. "entries of z", shared.backward, shared,
            { z = flin.randn(1, 2, 9), u = flin.randn(1, 2, 3, 9),
              dy = flin.ones(1, 2, 3), inplace = { "z" } })
  end
end
-- Rotations: an angle that heads share is of a group of them at once; each
-- head has the bits that it has alone.
do
  local rope = flin.layer {
    name = "rope", input = { head = "t h k", theta = "t p" },
    forward = function (x) return flin.rotate(x.head, x.theta, "k") end
  }
  local plan = tostring(rope:plan { B = 4, T = 1024, h = 16, k = 64, p = 32,
                                    machine = "h200" })
  check("rotations: a program over rows of a head", plan:find("rows of 64,"))
  for _, of in ipairs { { 1, 2 }, { 3, 6 }, { 4, 128 }, { 16, 64 },
                        { 16, 5000 } } do
    local H, K = of[1], of[2]
    local args = { head = flin.randn(2, 3, H, K, { seed = H }),
                   theta = flin.randn(2, 3, K // 2, { seed = K }) }
    local name = ("rotations, %d heads of %d"):format(H, K)
    holds(name, rope, args, 1e-6)
    args.dy = flin.randn(2, 3, H, K, { seed = 3 })
    local all = to_gpu(args)
    local y = rope:forward { head = all.head, theta = all.theta }:to "cpu"
    local d = rope:backward(all).head:to "cpu"
    local same_y, same_d = true, true
    for h = 1, H do
      local one = to_gpu { head = args.head:narrow(3, h, 1):contiguous(),
                           theta = args.theta }
      local dy = to_gpu { dy = args.dy:narrow(3, h, 1):contiguous() }.dy
      same_y = same_y and off(rope:forward(one):to "cpu",
                              y:narrow(3, h, 1):contiguous()) == 0
      one.dy = dy
      same_d = same_d and off(rope:backward(one).head:to "cpu",
                              d:narrow(3, h, 1):contiguous()) == 0
    end
    check(name .. ": y as head by head", same_y)
    check(name .. ": d_x as head by head", same_d)
  end
  -- narrow types, and angles of their own for each head
  local own = flin.layer {
    name = "own", input = { x = "t h k", angle = "t h p", s = "t h" },
    forward = function (x) return flin.rotate(x.x, x.angle, "k") * x.s end
  }
  holds("angles of each head", own, {
    x = flin.randn(2, 3, 4, 10), angle = flin.randn(2, 3, 4, 5),
    s = flin.randn(2, 3, 4) }, 1e-6)
  local args = { head = flin.randn(1, 5, 4, 32, { seed = 9 }):to "bfloat16",
                 theta = flin.randn(1, 5, 16, { seed = 8 }) }
  local y = rope:forward(to_gpu(args))
  local e = off(y:to "cpu", rope:reference(args))
  check("rotations in bfloat16", y.dtype == "bfloat16" and e < 4e-3, e)
end
-- What a weight of columns gets from rows: of a warp's at most, several of
-- which a warp has where they are short, by the kernel that has them, a block's
-- at a time; of longer ones, and where two are summed, by another.
do
  local norm = flin.layer {
    input = { x = "t d" }, weight = { w = "d" },
    forward = function (x, w) return flin.rms_norm(x.x, "d") * w.w end
  }
  for T, d in pairs { [9] = 1024, [20] = 1021, [37] = 12, [8200] = 9,
                      [70] = 3, [33] = 64, [5] = 1030 } do
    holds(("norms' weight, %d rows of %d"):format(T, d), norm,
          { x = flin.randn(1, T, d, { seed = d }),
            w = flin.randn(d, { seed = T }) }, 2e-6)
  end
  local two = flin.layer {
    input = { x = "t d" }, weight = { w = "d", b = "d" },
    forward = function (x, w)
      return flin.rms_norm(x.x, "d") * w.w + flin.silu(x.x) * w.b
    end
  }
  holds("two weights of columns", two, { x = flin.randn(2, 21, 40),
        w = flin.randn(40, { seed = 2 }), b = flin.randn(40, { seed = 3 }) },
        2e-6)
  local gate = flin.layer {             -- of heads, of each a row
    input = { x = "t h v", z = "t h v" }, weight = { w = "v" },
    forward = function (x, w)
      return flin.rms_norm(x.x, "v") * w.w * flin.silu(x.z)
    end
  }
  for d, dtype in pairs { [64] = "bfloat16", [96] = "float32" } do
    local x = flin.randn(2, 9, 5, d, { seed = 1 }):to(dtype)
    local z = flin.randn(2, 9, 5, d, { seed = 2 }):to(dtype)
    holds("gated norm of heads of " .. d, gate, { x = x, z = z,
          w = flin.randn(d, { seed = 3 }) }, dtype == "float32" and 2e-6
          or 5e-3)
  end
end

-- An inverse root mean square is saved, or made again: the bits of the way
-- forward. y[1] is it where z[1] is 1, and d_z[2] where z[2] is 0 and dy is 1
-- there alone.
do
  local rms = flin.layer {
    input = { z = "t n" },
    forward = function (x) return flin.rms_norm(x.z, "n") end
  }
  for _, n in ipairs { 40, 5000 } do
    local z, dy = flin.randn(1, 9, n, { seed = n }):totable(), {}
    for t, row in ipairs(z[1]) do
      row[1], row[2], dy[t] = 1, 0, {}
      for i = 1, n do dy[t][i] = i == 2 and 1 or 0 end
    end
    local args = to_gpu { z = flin.tensor(z), dy = flin.tensor { dy } }
    local y, _, saved = rms:forward { z = args.z, save = true }
    if cuda then
      check("a number a row is saved", saved.bytes >= 9 * 4
            and saved.bytes <= 256, saved.bytes)
    end
    y = y:to "cpu":totable()[1]
    for how, d in pairs { saved = rms:backward { saved = saved, dy = args.dy },
                          again = rms:backward(args) } do
      local bits = true
      for t, row in ipairs(d.z:to "cpu":totable()[1]) do
        bits = bits and row[2] == y[t][1]
      end
      check("the inverse root of " .. n .. ", " .. how, bits)
    end
  end
end

-- Between products and rules, in whole layers.
local vocabulary = flin.layer {
  name = "head",
  input = { x = "t d", label = "t : index n" },
  weight = { norm = "d", W = "d n" },
  forward = function (x, w)
    local z = flin.dot(flin.rms_norm(x.x, "d") * w.norm, w.W)
    return flin.logsumexp(z, "n") - flin.pick(z, x.label, "n")
  end
}
local mixing = flin.layer {
  input = { x = "t d", label = "t : index n" },
  weight = { Wq = "d h k", Wk = "d h k", Wv = "d h v", Wo = "h v n" },
  forward = function (x, w)
    local k = flin.softmax(flin.dot(x.x, w.Wk), "k")
    local y = flin.stdlib.linear { q = flin.dot(x.x, w.Wq), k = k,
                                   v = flin.dot(x.x, w.Wv) }
    local z = flin.dot(y, w.Wo)
    return flin.logsumexp(z, "n") - flin.pick(z, x.label, "n")
  end
}
-- What columns of a weight beside the product's are, a value of the token's in
-- front of it, an entry that is named; all by parts of rows.
local tilted = flin.layer {
  input = { x = "t d", label = "t : index n" },
  weight = { W = "d n", b = "n" },
  forward = function (x, w)
    local z = flin.dot(x.x, w.W) + w.b
    return flin.logsumexp(z, "n") - flin.pick(z, x.label, "n")
           + 0.1 * flin.sum(flin.square(z), "n") / flin.size(z, "n")
           + flin.at(z, "n", 1500)
  end
}
for _, T in ipairs { 5, 1030 } do
  local args = tilted:random { B = 2, T = T, d = 3, n = 2500 }
  local dy = flin.randn({ 2, T }, { seed = 7 })
  local given, back = to_gpu(args), to_gpu { dy = dy }
  local whole = tilted:backward(given, back)
  local y = tilted:forward(given):to "cpu"
  local e = off(y, tilted:reference(args))
  check("whole: y of " .. T, e < 1e-5, e)
  for how, memory in pairs { columns = T * 2 * 1024 * 4, tokens = 4 * 2500 } do
    local label = ("by %s of %d tokens: "):format(how, T)
    local part, _, saved = tilted:forward(given, { memory = memory,
                                                   save = true })
    e = off(part:to "cpu", y)
    check(label .. "y", e < 1e-6, e)
    for way, more in pairs { saved = saved, again = false } do
      local d = tilted:backward(given, { dy = back.dy, memory = memory,
                                         saved = more or nil })
      for _, name in ipairs { "x", "W", "b" } do
        e = off(d[name]:to "cpu", whole[name]:to "cpu")
        check(label .. "d_" .. name .. ", " .. way, e < 2e-6, e)
      end
    end
  end
end
-- The product and what reads it by tiles: the same numbers.
do
  local args = vocabulary:random { B = 2, T = 11, d = 8, n = 5000 }
  local whole = vocabulary:backward(to_gpu(args), {
    dy = to_gpu { dy = flin.ones(2, 11) }.dy })
  local y = vocabulary:forward(to_gpu(args), { plan = "tiles" })
  local e = off(y:to "cpu", vocabulary:reference(args))
  check("tiles: y", e < 1e-5, e)
  local tiles = vocabulary:backward(to_gpu(args), {
    dy = to_gpu { dy = flin.ones(2, 11) }.dy, plan = "tiles" })
  for _, name in ipairs { "x", "W", "norm" } do
    e = off(tiles[name]:to "cpu", whole[name]:to "cpu")
    check("tiles: d_" .. name, e < 1e-5, e)
  end
  local function plan_of(o)
    o.backward, o.machine = true, "h200"
    return vocabulary:plan(o)
  end
  local function is_cut(o, how, why)
    local text = plan_of(o).text
    check("tiles: " .. why, text:find(how, 1, true), text)
  end
  -- What is read again is the smaller one: the values where tokens are fewer
  -- than columns, else the weight. Halves of halves, or as many tokens as fit.
  is_cut({ d = 64, n = 32000, T = 256, plan = "tiles" },
         "x 64, in tiles of 8192 columns", "few tokens")
  is_cut({ d = 64, n = 2048, T = 65536, plan = "tiles" },
         "x 64, in tiles of 16384 tokens", "few columns")
  is_cut({ d = 4096, n = 256000, T = 1024, memory = 64 << 20 },
         "in tiles of 32768 columns", "a limit")
  is_cut({ d = 4096, n = 256000, T = 1024, memory = 2^20 },
         "in tiles of 2 tokens", "a limit below that of columns")
  local free = plan_of { d = 512, n = 32000, T = 1024 }
  local most = plan_of { d = 512, n = 32000, T = 1024, memory = 1024 * 64000 }
  check("tiles: what fits is whole", free.text == most.text, most.text)
  local ok, e = pcall(plan_of, { d = 8, n = 32000, T = 8, memory = 1000 })
  check("tiles: a limit below all", not ok and tostring(e):find(
        "memory = 1000: of a product that is read by rows a token takes 64000 "
        .. "bytes, and 1024 columns of all 16384", 1, true), e)
  local long = vocabulary:plan { d = 64, n = 256000, T = 256, plan = "tiles",
                                 machine = "h200", backward = true }
  check("tiles: more columns than a variant's axes", long.predicted > 0
        and long.parts)
end
if not cuda then
  for name, layer in pairs { head = vocabulary, mixing = mixing } do
    local r = layer:check { T = 20, size = 5, n = 37 }
    check(name .. ": check", r.worst < 1e-4, r.worst)
  end
  check("form", entropy.form:find("row by row", 1, true), entropy.form)
  -- the norm is computed for the product, not in a pass behind it
  local plan = vocabulary:plan { d = 64, n = 32000, T = 256 }
  check("plan", plan.text:find("rows of 32000, 1 pass ", 1, true), plan.text)
end

-- ---- what is refused ----

local z, good = flin.zeros(2, 3, 5), labels(2, 3, 5)
local bad = flin.tensor({ { 0, 1, 2 }, { 3, 5, 0 } }, { dtype = "int64" })
if cuda then
  local args = to_gpu { z = z, label = bad }
  local y = entropy:forward(args):to "cpu":totable()
  check("no such entry on a GPU: NaN", y[2][2] ~= y[2][2]
        and y[2][1] == y[2][1])
  local x = mixing:random { B = 1, T = 3, d = 4, h = 1, k = 4, v = 4, n = 5 }
  x.validate = true
  check("all in order", pcall(mixing.forward, mixing, to_gpu(x)))
  x.label = flin.tensor({ { 1, 5, 0 } }, { dtype = "int64" })
  refused("and by name, beside a rule", "label is declared index, a whole "
          .. "number from 0, but is 5 at token 1,", mixing.forward, mixing,
          to_gpu(x))
end
refused("no such entry", "label is 5 at token 1 of batch entry 1",
        entropy.forward, entropy, { z = z, label = bad })
refused("it is said, backward", "from 0 to 4", entropy.backward, entropy,
        { z = z, label = bad, dy = flin.ones(2, 3) })
refused("it is said, by the float64 step", "label is 5", entropy.reference,
        entropy, { z = z, label = bad })
refused("a negative one", "label is -100 at token 0", entropy.forward, entropy,
        { z = z, label = flin.full({ 2, 3 }, -100, { dtype = "int64" }) })
refused("no whole numbers", "label is float32, but is declared an index of "
        .. "axis 'n'", entropy.forward, entropy,
        { z = z, label = good:to "float32" })
refused("whole numbers for logits", "z is int64: float32", entropy.forward,
        entropy, { z = z:to "int64", label = good })
local function layer(forward, input)
  return flin.layer { input = input or { z = "t n", label = "t : index n" },
                      forward = forward }
end
refused("in place, read by two", "2 parts of", function ()
  local z = flin.zeros(1, 2, 4)
  flin.layer { input = { z = "t n" }, weight = { W = "n m", V = "n m" },
               forward = function (x, w)
    return flin.dot(x.z, w.W) + flin.dot(flin.softmax(x.z, "n"), w.V)
  end }:backward { z = z, W = flin.zeros(4, 2), V = flin.zeros(4, 2),
                   dy = flin.zeros(1, 2, 2), inplace = { "z" } }
end)
refused("in place, of a variant", "layers' inputs can", function ()
  local linear = flin.stdlib.linear
  local x = linear:random { T = 4, K = 4, V = 4 }
  x.dy, x.inplace = linear:forward(x), { "v" }
  linear:backward(x)
end)
refused("no index", "pick: u is no index", layer, function (x)
  return flin.pick(x.z, x.u, "n")
end, { z = "t n", u = "t" })
refused("another axis's index", "is an index of axis 'm', not of 'n'", layer,
        function (x) return flin.pick(x.z, x.u, "n") end,
        { z = "t n", u = "t : index m" })
refused("a number", "pick: argument 2 is a number", layer, function (x)
  return flin.pick(x.z, 3, "n") + x.label
end)
refused("an index of no axis", "an index is one of an axis", layer,
        function (x) return x.u end, { u = "t : index" })
refused("an index in a step", "inputs of layers are that alone", flin.variant,
        { input = { q = "t : index k" },
          step = function (x) return {}, x.q end })
refused("rows in a step", "logsumexp: a step has no rows", flin.variant, {
  input = { q = "t k" },
  step = function (x) return {}, flin.logsumexp(x.q, "k") end
})
refused("an index for a number", "label is an index, and no number", layer,
        function (x)
          return flin.stdlib.simple_gla { q = x.q, k = x.q, v = x.v,
                                          g = x.label }
        end, { q = "t k", v = "t v", label = "t : index k" })
refused("over two axes", "no program over rows", function ()
  layer(function (x) return flin.logsumexp(x.z, "m n") end,
        { z = "t m n" }):forward { z = flin.zeros(1, 2, 3, 4) }
end)

print(passed .. " passed, " .. failed .. " failed")
os.exit(failed == 0 and 0 or 1)
