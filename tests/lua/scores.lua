-- Steps as sums over pairs of tokens (compiler/scores.h): y and gradients
-- against the float64 step, which has the states; which steps have that form,
-- and which calls take it.
--   flin scores.lua [cuda]
local flin = require "flin"
local D <const>, F <const> = flin.decay, flin.feature_map
local dot <const>, outer <const>, exp <const> = flin.dot, flin.outer, flin.exp

local passed, failed = 0, 0
local function check(what, ok, ...)
  if ok then passed = passed + 1 return end
  failed = failed + 1
  print("FAIL " .. what, ...)
end

local device, only = arg[1] == "cuda" and "cuda" or "cpu", arg[2]
if device == "cuda" and not flin.cuda {} then
  print "skip: no GPU"
  os.exit(0)
end
local dtypes <const> = device == "cuda" and { "bfloat16", "float32" }
                       or { "float32", "float16" }
-- Rounding of tensors and, of 16 bits, of weights: gates' gradients are sums of
-- what cancels.
local limits <const> = { bfloat16 = 1.2e-2, float16 = 3e-3, float32 = 1e-5 }

local function relative(a, b)
  a, b = a:to "cpu":to "float64", b:to "float64"
  local off = a - b
  return ((off * off):sum() / math.max((b * b):sum(), 1e-30)) ^ 0.5
end

local function moved(x, dtype)
  local here, there = { states = false }, { states = false }
  for name, t in pairs(x) do
    here[name], there[name] = t, t
    if flin.is_tensor(t) then
      t = t:to(dtype)
      here[name], there[name] = t:to "float64", t:to(device)
    end
  end
  return here, there
end

-- An angle a token, the same for all: its gradient adds up over pairs what a
-- turn of both tokens leaves as it is.
local function limit_of(v, name, limit)
  for _, input in ipairs(v.inputs) do
    if input.name == name and input.axes == "p" then return 40 * limit end
  end
  return 3 * limit
end

-- y and all gradients of the call, anew and from what it has saved.
local function laws(what, v, x)
  for _, dtype in ipairs(dtypes) do
    local title, limit = what .. " in " .. dtype, limits[dtype]
    local here, there = moved(x, dtype)
    local want = v:reference(here)
    local y = v:forward(there)
    check(title .. ": y", relative(y, want) <= limit, relative(y, want))
    there.save = true
    local again, none, saved = v:forward(there)
    check(title .. ": y again", relative(again, want) <= limit)
    check(title .. ": states", none == nil)
    there.save = nil
    local dy = flin.randn(want.shape):to(dtype)
    here.dy, there.dy = dy:to "float64", dy:to(device)
    local d = v:reference_backward(here)
    local got, kept = v:backward(there), v:backward { saved = saved,
                                                      dy = there.dy }
    for name, g in pairs(d) do
      local e = relative(got[name], g)
      local most = limit_of(v, name, limit)
      check(title .. ": d_" .. name, e <= most, e)
      e = relative(kept[name], g)
      check(title .. ": d_" .. name .. " from what is saved", e <= most, e)
    end
  end
end

-- Sizes that no tile divides, heads that are shared, and packed sequences, of
-- which one is empty and one a token.
local function all(what, v, edit)
  if only and not what:find(only, 1, true) then return end
  local sizes <const> = { B = 2, T = 37, H = 2, HV = 4, K = 8, V = 8 }
  local x = v:random(sizes)
  if edit then edit(x) end
  laws(what, v, x)
  local packed = v:random { B = 1, T = 71, H = 2, K = 8, V = 16 }
  if edit then edit(packed) end
  packed.cu_seqlens = { 0, 33, 33, 34, 71 }
  laws(what .. ", packed", v, packed)
end

-- ---- flin.attention's ----

local decays <const> = {
  none = D.none {}, fixed = D.fixed {}, gated = D.gated {},
  exponential = D.exponential { data_dependent = false },
  ["exponential dt"] = D.exponential {},
  ["gated trapezoidal"] = D.gated { discretization = "trapezoidal" },
  trapezoidal = D.exponential { discretization = "trapezoidal" },
}
for name, decay in pairs(decays) do
  all("taylor " .. name, flin.attention {
    decay = decay, features = F.taylor(), mode = "quadratic" })
end
for name, features in pairs {
  rope = { F.rope {}, F.taylor() }, ["a norm"] = { F.l2norm {}, F.taylor() },
  ["rope of tokens"] = { F.rope { data_dependent = true }, F.taylor() },
} do
  all("taylor of " .. name, flin.attention {
    decay = D.gated {}, features = features, mode = "quadratic" })
end

-- Gates that leave next to nothing, and nothing.
do
  local v = flin.attention { decay = D.gated {}, features = F.taylor(),
                             mode = "quadratic" }
  all("resets", v, function (x)
    local g = x.g:totable()
    for b = 1, #g do
      for t = 3, #g[b], 5 do
        for h = 1, #g[b][t] do
          g[b][t][h] = ({ -1e9, -math.huge, -90, -3e38 })[(t + h) % 4 + 1]
        end
      end
    end
    x.g = flin.tensor(g)
  end)
end

-- ---- steps of one's own ----

local function squares(u) return outer(u, flin.rename(u, "k", "l")) end

-- Learned features of squares, their sum of weights beside them; parameters for
-- each head and channel.
local rebased <const> = {
  name = "learned squares", mode = "quadratic",
  input = { q = "t k", k = "t k", v = "t v", a = "k", b = "k" },
  state = { S = "k l v", z = "k l" },
  step = function (x, s)
    local q, k = squares(x.a * x.q + x.b), squares(x.a * x.k + x.b)
    local S, z = s.S + outer(k, x.v), s.z + k
    return { S = S, z = z },
           dot(q, S) / (flin.sum(flin.sum(q * z, "l"), "k") + 1)
  end,
}
all("learned squares", flin.variant(rebased))

-- The third power, a gate, a weight of each side, and what stands around.
all("cubes", flin.variant {
  name = "cubes", mode = "quadratic",
  input = { q = "t k", k = "t k", v = "t v", g = "t : log_decay",
            beta = "t : unit", gate = "t v" },
  state = { S = "k l m v" },
  step = function (x, s)
    local function cube(u)
      return outer(squares(u), flin.rename(u, "k", "m"))
    end
    local S = exp(x.g) * s.S + outer(x.beta * cube(x.k), x.v)
    return { S = S }, flin.silu(x.gate) * dot(cube(x.q), S) + x.v
  end,
})

-- Read before it is written, and both.
all("reads before writes", flin.variant {
  name = "before", mode = "quadratic",
  input = { q = "t k", k = "t k", v = "t v", g = "t : log_decay" },
  state = { S = "k l v" },
  step = function (x, s)
    local S = exp(x.g) * s.S + outer(squares(x.k), x.v)
    return { S = S }, dot(squares(x.q), s.S) + x.v
  end,
})
all("two decays, one read before", flin.variant {
  name = "two", mode = "quadratic",
  input = { q = "t k", k = "t k", v = "t v", g = "t : log_decay",
            h = "t : log_decay" },
  state = { S = "k l v", R = "k v" },
  step = function (x, s)
    local S = exp(x.g) * s.S + outer(squares(x.k), x.v)
    local R = exp(x.h) * s.R + outer(x.k, x.v)
    return { S = S, R = R }, dot(squares(x.q), S) - dot(x.q, s.R) / 2
  end,
})
-- Of degree 1: what is asked for is done.
all("plain linear attention", flin.variant {
  name = "linear", mode = "quadratic",
  input = { q = "t k", k = "t k", v = "t v", g = "t : log_decay" },
  state = { S = "k v" },
  step = function (x, s)
    local S = exp(x.g) * s.S + outer(x.k, x.v)
    return { S = S }, dot(x.q, S)
  end,
})

-- One after another in the same workspace, of which one has no bytes.
do
  local weighed = flin.variant {
    name = "weighed", mode = "quadratic",
    input = { q = "t k", k = "t k", v = "t v", w = "t" },
    state = { S = "k v" },
    step = function (x, s)
      local S = s.S + outer(x.w * x.k, x.v)
      return { S = S }, dot(x.q, S)
    end,
  }
  for _, tokens in ipairs { 64, 70, 128 } do
    local x = weighed:random { B = 1, T = tokens, H = 1, K = 64, V = 64 }
    local here, there = moved(x, dtypes[1])
    local e = relative(weighed:forward(there), weighed:reference(here))
    check("weighed keys, " .. tokens .. " tokens", e <= limits[dtypes[1]], e)
  end
end

-- ---- which have no such form ----

local function refused(what, part, definition)
  local ok, why = pcall(flin.variant, definition)
  check(what, not ok and tostring(why):find(part, 1, true), why)
end

local function inputs(more)
  local all = { q = "t k", k = "t k", v = "t v" }
  for name, axes in pairs(more or {}) do all[name] = axes end
  return all
end
refused("two scores", "is no product of one score", {
  mode = "quadratic", input = inputs { r = "t k" }, state = { S = "k l v" },
  step = function (x, s)
    local S = s.S + outer(outer(x.k, flin.rename(x.r, "k", "l")), x.v)
    return { S = S }, dot(squares(x.q), S)
  end,
})
refused("weights of pairs of channels", "is no product of one score", {
  mode = "quadratic", input = inputs { m = "k l" }, state = { S = "k l v" },
  step = function (x, s)
    local S = s.S + outer(x.m * squares(x.k), x.v)
    return { S = S }, dot(squares(x.q), S)
  end,
})
refused("a gate for each key", "no state is a sum", {
  mode = "quadratic", input = inputs { g = "t k : log_decay" },
  state = { S = "k v" },
  step = function (x, s)
    local S = exp(x.g) * s.S + outer(x.k, x.v)
    return { S = S }, dot(x.q, S)
  end,
})
refused("a delta rule", "no state is a sum", {
  mode = "quadratic", input = inputs(), state = { S = "k v" },
  step = function (x, s)
    local S = s.S + outer(x.k, x.v - dot(x.k, s.S))
    return { S = S }, dot(x.q, S)
  end,
})
refused("another mode", "there is no mode", {
  mode = "cubic", input = inputs(), state = { S = "k v" },
  step = function (x, s)
    local S = s.S + outer(x.k, x.v)
    return { S = S }, dot(x.q, S)
  end,
})

-- ---- which calls go so ----

do
  local forced = flin.attention { decay = D.gated {}, features = F.taylor(),
                                  mode = "quadratic" }
  local free = flin.attention { decay = D.gated {}, features = F.taylor() }
  local x = forced:random { T = 20, H = 2, K = 8, V = 8 }
  local here, there = moved(x, "float32")
  here.states, there.states = nil, nil
  -- its states are the step's own
  local want, ends = free:reference(here)
  local y, states = forced:forward(there)
  check("y beside states", relative(y, want) <= 1e-5)
  for name, s in pairs(ends) do
    check("state " .. name, relative(states[name], s) <= 1e-5)
  end
  -- from a state: by states
  here.initial_state, there.initial_state = ends, states
  local e = relative(forced:forward(there), free:reference(here))
  check("from a state", e <= 1e-5, e)
  here.dy, there.dy = here.v, there.v
  local d = forced:backward(there)
  local exact = free:reference_backward(here)
  check("back to a state", relative(d.initial_state.S2,
                                    exact.initial_state.S2) <= 1e-5)
  check("states = false takes none", not pcall(forced.forward, forced, {
    q = x.q, k = x.k, v = x.v, g = x.g, states = false,
    initial_state = states }))
  check("check", forced:check({ T = 20, K = 8, V = 8 }).worst < 1e-5)
end

-- ---- by price ----

do
  local v = flin.attention { decay = D.gated {}, features = F.taylor() }
  local function mode(o)
    o.machine = o.machine or "h200"
    return v:plan(o).mode
  end
  check("short", mode { K = 128, V = 128, T = 4096 } == "quadratic")
  check("short, both ways",
        mode { K = 128, V = 128, T = 4096, backward = true } == "quadratic")
  check("long", mode { K = 128, V = 128, T = 1 << 20 } == "linear")
  check("small keys", mode { K = 16, V = 64, T = 1 << 16 } == "linear")
  check("asked for", mode { K = 16, V = 64, T = 1 << 16, mode = "quadratic" }
                     == "quadratic")
  check("the CPU", v:plan { K = 16, V = 16 }.mode == nil)
  local plan = v:plan { K = 128, V = 128, backward = true, machine = "h200" }
  local names = {}
  for _, k in ipairs(plan.kernels) do names[k.name] = k end
  check("kernels", names.sum1_forward and names.sum1_keys and names.sum1_queries
        and names.sum1_forward.form == "wgmma")
  check("wide", v:plan { K = 256, V = 128, machine = "h200", T = 1024,
                         mode = "quadratic" }.kernels[2].why)
  check("text", tostring(plan):find "which is less")
end

print(("%d passed, %d failed"):format(passed, failed))
os.exit(failed == 0)
