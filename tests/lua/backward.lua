-- Gradients of every variant of the standard library, and of steps that go
-- token by token, against reverse mode of the float64 step; that one against
-- differences; saved calls, strong gates, plans.
local flin = require "flin"

local count = require "support.count"
local expect <const> = count.expect

local names = {}
for name in pairs(flin.stdlib) do names[#names + 1] = name end
table.sort(names)

-- float32 sums of a few hundred terms; bfloat16 results are rounded at 1.7e-3.
local LIMIT <const> = { float32 = 1e-4, bfloat16 = 8e-3 }
local cases = {
  { B = 1, T = 70, H = 1, HV = 2, K = 16, V = 20, chunk = 32 },
  { B = 1, T = 40, H = 2, K = 16, V = 16, chunk = 16,
    cu_seqlens = { 0, 5, 5, 12, 40 } },
  { B = 2, T = 33, H = 1, K = 32, V = 16, chunk = 64, dtype = "bfloat16" },
}
for _, name in ipairs(names) do
  for seed, case in ipairs(cases) do
    case.seed = seed
    local found = flin.stdlib[name]:check(case)
    for what, e in pairs(found) do
      if what:find "^d_" then
        expect(e <= LIMIT[case.dtype or "float32"], "%s, case %d: %s is off "
               .. "by %.1e", name, seed, what, e)
      end
    end
  end
end

-- A step without a chunk form, longer than a segment, with a constant.
local tanh = flin.variant {
  name = "recurrent",
  input = { k = "t k", v = "t v", w = "k" },
  state = { S = "k v" },
  step = function (x, s)
    local S = flin.tanh(s.S + flin.outer(x.w * x.k, x.v))
    return { S = S }, flin.dot(x.k, S)
  end,
}
for _, T in ipairs { 1, 64, 65, 150 } do
  local found = tanh:check { B = 2, T = T, K = 8, V = 8 }
  expect(found.note, "tanh has a chunk form")
  expect(found.worst <= 1e-4, "serial, T = %d: off by %.1e", T, found.worst)
end
do
  local found = tanh:check { cu_seqlens = { 0, 0, 70, 71, 150 }, K = 8, V = 8 }
  expect(found.worst <= 1e-4, "serial, packed: off by %.1e", found.worst)
end

-- The float64 gradient against differences, by a loss of our own.
local function random_call(v, T, sizes)
  local call = {}
  for _, input in ipairs(v.inputs) do
    local shape = { 1, T, 1 }
    if not input.axes:find "^t" then shape = { 1 } end
    for axis in input.axes:gmatch "%a%w*" do
      if axis ~= "t" then shape[#shape + 1] = sizes[axis] end
    end
    local x = flin.randn(shape, { dtype = "float64" })
    if input.domain == "log_decay" then x = x:map(function (e)
      return -math.log(1 + math.exp(-e)) end) end
    if input.domain == "unit" then x = x:map(function (e)
      return 1 / (1 + math.exp(-e)) end) end
    if input.domain == "positive" then x = x:map(function (e)
      return math.log(1 + math.exp(e)) end) end
    call[input.name] = x
  end
  return call
end

local function total(x) return type(x) == "number" and x or x:sum() end

for _, name in ipairs { "gated_deltanet", "mlstm", "mamba3", "rwkv7" } do
  local v = flin.stdlib[name]
  local call = random_call(v, 9, { k = 4, v = 4, p = 2 })
  local dy = flin.randn({ 1, 9, 1, 4 }, { dtype = "float64" })
  local function loss()
    local y = v:reference(call)
    return total(y * dy)
  end
  call.dy = dy
  local grad = v:reference_backward(call)
  call.dy = nil
  for _, input in ipairs(v.inputs) do
    local x, g = call[input.name], grad[input.name]
    local step = flin.randn(x.shape, { dtype = "float64" }) * 1e-6
    local directional = total(g * step)
    call[input.name] = x + step
    local up = loss()
    call[input.name] = x - step
    local down = loss()
    call[input.name] = x
    local want = (up - down) / 2
    expect(math.abs(directional - want) <= 1e-5 * math.abs(want) + 1e-12,
           "%s: d_%s is %.9g, by differences %.9g", name, input.name,
           directional, want)
  end
end

-- Numbers of a coarse grid, so that many are equal: of a max of equals each has
-- half of the gradient on every path, whatever order its operands are in.
do
  local exp, dot, outer, max, min = flin.exp, flin.dot, flin.outer, flin.max,
                                    flin.min
  local input <const> = { q = "t k", k = "t k", v = "t v", i = "t",
                          f = "t : log_decay" }
  local state <const> = { S = "k v", m = "" }
  local function running(m)
    return function (x, s)
      local now = m(x, s)
      local S = exp(s.m - now) * s.S + exp(x.i - now) * outer(x.k, x.v)
      return { S = S, m = now }, dot(x.q, S) * exp(x.f)
    end
  end
  local variants = {
    running(function (x, s) return max(s.m, x.i) end),
    running(function (x, s) return max(x.i, s.m) end),
    running(function (x, s) return max(x.f + s.m, x.i) end),
    running(function (x, s) return max(max(x.f, x.i), s.m) end),
    -- three and four, of which a half, a quarter and an eighth
    running(function (x, s)
      return max(max(x.f, max(x.i, -0.5)), x.f + s.m)
    end),
    running(function (x, s)
      return max(s.m, max(min(x.i, x.f), max(x.f + x.i, x.i)))
    end),
    running(function (x, s) return max(max(s.m, x.i), x.f) end),
    running(function (x, s) return max(max(x.i, x.f), max(s.m, x.i)) end),
    function (x, s)
      local S = exp(x.f) * s.S + outer(max(x.k, x.q), min(x.v, max(x.i, x.f)))
      return { S = S, m = max(s.m, min(x.i, x.f)) },
             dot(max(x.q, 0.5), S) * min(1, s.m) + max(x.i, -0.5) * x.v
    end,
    function (x, s)
      local S = exp(min(x.f, -0.5)) * s.S + outer(max(x.q, 0), min(x.v, x.i))
      return { S = S, m = max(x.i + x.f, s.m) },
             dot(flin.abs(x.k), S) * exp(x.i - max(x.i, s.m)) + max(-x.i, x.i)
    end,
  }
  local function coarse(x) return x:map(function (e)
    return math.floor(2 * e + 0.5) / 2 end) end
  for n, step in ipairs(variants) do
    local v = flin.variant { name = "equals", input = input, state = state,
                             step = step }
    local call = random_call(v, 70, { k = 4, v = 4 })
    for name, x in pairs(call) do call[name] = coarse(x) end
    call.initial_state = {
      S = coarse(flin.randn({ 1, 1, 4, 4 }, { dtype = "float64" })),
      m = flin.tensor({ { 0.5 } }, { dtype = "float64" }) }
    call.dy = flin.randn({ 1, 70, 1, 4 }, { dtype = "float64" })
    call.chunk = 16
    local want = v:reference_backward(call)
    for _, backend in ipairs { "interpreter", "cpu" } do
      call.backend = backend
      local got = v:backward(call)
      for name in pairs(input) do
        local off = got[name]:to "float64" - want[name]
        expect(off:maxabs() <= 1e-5 * want[name]:maxabs(),
               "equals %d: d_%s on %s is off by %g", n, name, backend,
               off:maxabs())
      end
    end
    call.backend = nil
  end
end

-- A saved call needs its arguments no more; dy alone, dstate alone add up.
do
  local v = flin.stdlib.gated_deltanet
  local call = random_call(v, 30, { k = 8, v = 8 })
  for key, x in pairs(call) do call[key] = x:to "float32" end
  call.save = true
  local y, state, saved = v:forward(call)
  call.save = nil
  local dy, dS = flin.randn(y.shape), flin.randn(state.S.shape)
  local a = v:backward { saved = saved, dy = dy, dstate = { S = dS } }
  call.dy, call.dstate = dy, { S = dS }
  local b = v:backward(call)
  expect((a.q - b.q):maxabs() == 0, "saved: another gradient")
  call.dstate = nil
  local c = v:backward(call)
  call.dy, call.dstate = nil, { S = dS }
  local d = v:backward(call)
  expect((c.k + d.k - b.k):maxabs() < 1e-4, "dy and dstate do not add up")
  expect(d.q:maxabs() == 0, "q has a gradient from the state")
  expect(a.initial_state.S.shape[3] == 8, "no gradient of the initial state")
  call.dstate = nil
  local ok, why = pcall(v.backward, v, call)
  expect(not ok and why:find "neither dy nor dstate", "no gradient comes in: "
         .. "%s", why)
  call.dy = flin.randn { 1, 30, 1, 9 }
  ok, why = pcall(v.backward, v, call)
  expect(not ok and why:find "dy has shape", "a dy too wide: %s", why)
end

-- Gates of 0, of which exp leaves all, down to -300, of which it leaves nothing
-- and a chunk's product long before: finite, and right.
local function relative(a, b)
  local off, b = a:to "float64" - b, b:to "float64"
  return ((off * off):sum() / math.max((b * b):sum(), 1e-30))^0.5
end
for _, name in ipairs(names) do
  local v = flin.stdlib[name]
  local call = v:random { B = 1, T = 70, H = 2, K = 16, V = 16, seed = 1 }
  local n, gates = 0, call.A_log
  if gates then gates:narrow(1, 1, 1):fill(5) end    -- a head's
  for _, input in ipairs(v.inputs) do
    if input.domain == "log_decay" then
      gates = call[input.name]:map(function (e)
        n = n + 1
        return n % 3 == 0 and -30 * (1 + n // 3 % 10) or n % 3 == 1 and 0 or e
      end)
      call[input.name] = gates
    end
  end
  if gates then
    call.dy = flin.randn((v:reference(call)).shape, { seed = 2 })
    local grad, want = v:backward(call), v:reference_backward(call)
    for _, input in ipairs(v.inputs) do
      local off = relative(grad[input.name], want[input.name])
      expect(off <= LIMIT.float32, "%s: d_%s under strong gates is off by %.1e",
             name, input.name, off)
    end
  end
end

-- Plans of the joint graphs: soon made, the same again, few bytes.
-- Floors in bytes a token and head: forward plus backward with checkpoints; how
-- much more the kernels move that are launched, at most: states, adjoints and
-- scores lie in memory between a walk and the kernels of all chunks; the way
-- forward keeps scores, inverses and solved values for the way back, where all
-- takes less time so (gla's: decays by key are exponentials of each pair).
local FLOOR <const> = { mamba2 = 3228, gla = 3980, deltanet = 3228,
  gated_deltanet = 3232, kda = 3996, mamba3 = 3228 }
local MOST <const> = { mamba2 = 1.3, gla = 1.9, deltanet = 2.4,
  gated_deltanet = 2.4, kda = 2.4, mamba3 = 3.2 }
-- Chosen greedily: the chunk that calls take there needs four kernels or more,
-- and they are not proved to be the best.
local GREEDY <const> = { rwkv7 = 0.55, mamba3_mimo = 0.4 }
-- Of what kernels of a product each would move: those are of half as many rows,
-- of what has one a token.
local LEFT <const> = { deltaproduct = 0.65 }
-- Seconds, where each rank is a row of a chunk: all ways are larger graphs.
local LONG <const> = { mamba3_mimo = 3.5 }
-- They are those of a machine that takes 50 ms for this; a slower one, or one
-- that others keep busy, has as many times more.
local function slowness()
  local least = math.huge
  for _ = 1, 3 do
    local start, sum = os.clock(), 0
    for i = 1, 5000000 do sum = sum + i % 7 end
    least = math.min(least, os.clock() - start)
  end
  return math.max(1, least / 0.05)
end
local SLOWER <const> = slowness()
for _, name in ipairs(names) do
  local v = flin.stdlib[name]
  local sizes = { K = 128, V = 128, backward = true, machine = "h200" }
  sizes.chunk = FLOOR[name] and 64
  local start = os.clock()
  local plan = v:plan(sizes)
  local middle = os.clock()
  local again = v:map({}):plan(sizes)   -- another variant: made anew
  local seconds = math.min(middle - start, os.clock() - middle)
  -- all ways to cut the kernels are weighed, each kernel scheduled once
  expect(seconds < (LONG[name] or 1) * SLOWER, "%s: planned in %.2f s", name,
         seconds)
  expect(plan.gap and plan.gap < (GREEDY[name] or 0.05)
         and (plan.gap == 0 or not plan.optimal), "%s: the gap is %s",
         name, plan.gap)
  expect(plan.bytes == again.bytes and #plan.kernels == #again.kernels,
         "%s: another plan the second time", name)
  expect(plan.bytes <= (LEFT[name] or 0.6) * plan.unfused_bytes,
         "%s: %.0f of %.0f bytes", name, plan.bytes, plan.unfused_bytes)
  if FLOOR[name] then
    expect(plan.bytes <= MOST[name] * FLOOR[name],
           "%s: %.0f bytes, %.2f of the floor", name, plan.bytes,
           plan.bytes / FLOOR[name])
  end
end

-- What is detached has the values of what it is of, and no gradient: of what
-- has tokens or none, for each entry or one, by rows and by chunks.
do
  local detach <const> = flin.detach
  local function layer(a, b, forward)
    return flin.layer { name = "detached", weight = { a = a, b = b },
                        input = { x = "t h n", z = "t h n" },
                        forward = forward }
  end
  local steps = {
    layer("", "n", function (x, w) return detach(w.a * x.x + w.b) * x.z end),
    layer("h", "h n", function (x, w)
      return flin.sum(detach(w.a * x.x + w.b) * x.z, "n") end),
    layer("", "h n", function (x, w)
      return flin.rms_norm(detach(w.a * x.x) * x.z + w.b, "n") end),
    flin.variant { name = "detached", state = { S = "k v" },
      input = { x = "t k", z = "t v", a = "k", b = "t : log_decay" },
      step = function (x, s)
        local S = flin.exp(x.b) * s.S
                + flin.outer(detach(x.x * x.a), x.z)
        return { S = S }, flin.sum(S, "k")
      end },
    flin.variant { name = "detached", mask = function (i, j, p)
      if i < j then return 0 end
      return detach(p.x[j]) * detach(p.a[i]) * p.z[j]
    end },
  }
  for i, v in ipairs(steps) do
    local r = v:check { B = 2, T = 40, H = 2, size = 12, seed = i }
    expect(r.worst < 1e-4, "detached %d: %s", i, r)
    local given = v:random { B = 2, T = 40, H = 2, size = 12, seed = i }
    given.dy = v:forward(given) * 0 + 1
    local d = v:backward(given)
    expect(d.x:map(math.abs):max() == 0 and d.a:map(math.abs):max() == 0
           and d.z:map(math.abs):max() > 0, "detached %d: gradients", i)
    local fine, why = pcall(v.gradcheck, v)
    expect(v.detaches and not fine and tostring(why):find "flin.detach",
           "detached %d: differences", i)
  end
end

do
  local v = flin.stdlib.gated_deltanet
  local plan = v:plan { K = 128, V = 128, chunk = 64, backward = true,
                        machine = "h200" }
  -- of all chunks at once: scores before a walk, gradients behind it
  local found, at = { forward = 0, reverse = 0, token = 0 }, {}
  for i, kernel in ipairs(plan.kernels) do
    found[kernel.kind] = found[kernel.kind] + 1
    at[kernel.kind] = i
  end
  expect(found.forward == 1 and found.reverse == 1 and found.token > 0,
         "%d walks forward, %d back, %d kernels of all chunks", found.forward,
         found.reverse, found.token)
  expect(at.forward and at.reverse and at.forward < at.reverse,
         "a walk back before the one forward")
  expect(tostring(plan):find "recomputed", "nothing is recomputed")
  expect(v:plan { backward = true, format = "dot" }:find "subgraph", "dot")
  expect(v:plan { backward = true, format = "svg" }:find "</svg>", "svg")
end

count.finish()
