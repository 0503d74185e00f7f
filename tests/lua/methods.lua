-- Methods written in Lua: v:bench, v:gradcheck, v:mask, v:dag; v:random,
-- v:form, flin.heat_map, flin.help.
local flin = require "flin"
local count = require "support.count"
local check <const> = count.check

local function fails(name, want, f, ...)
  local ok, message = pcall(f, ...)
  check(name, not ok and tostring(message):find(want, 1, true), message)
end

local gdn = flin.stdlib.gated_deltanet

-- ---- v:random ----

do
  local x = gdn:random { B = 3, T = 5, H = 2, HV = 4, K = 8, V = 6, seed = 7 }
  check("shape", table.concat(x.v.shape, " ") == "3 5 4 6",
        table.concat(x.v.shape, " "))
  check("heads", x.q.shape[3] == 2 and x.v.shape[3] == 4)
  check("domains", x.g:max() <= 0 and x.beta:min() >= 0
        and math.abs(x.k[1][1][1]:norm():max() - 1) < 1e-5)
  local y = gdn:random { B = 3, T = 5, H = 2, HV = 4, K = 8, V = 6, seed = 7 }
  check("seed", (x.q - y.q):maxabs() == 0)
  fails("unknown", "random: there is no option 'X'", gdn.random, gdn,
        { X = 1 })
end

-- ---- v:bench ----

do
  local b = gdn:bench { T = 70, H = 1, K = 8, V = 8, seconds = 0.01 }
  local names = {}
  for i, row in ipairs(b.rows) do
    names[i] = row.name
    check("time of " .. row.name, row.seconds > 0 and row.runs >= 3)
  end
  check("rows", table.concat(names, ", ") == "forward, chunks, token by token,"
        .. " forward + backward, backward alone, decode, one token",
        table.concat(names, ", "))
  check("bytes", b.bytes == 4 * (70 * (3 * 8 + 2) + 70 * 8 + 64), b.bytes)
  check("floor", b.floor == b.bytes / b.copy and b.copy > 1e8, b.floor)
  check("speedup", b.speedup == b.rows[2].seconds / b.rows[1].seconds)
  check("text", tostring(b):find "floor +%d", tostring(b))
  local plan, calls, flops = gdn:plan { K = 8, V = 8, backward = true }, {}, 0
  for _, k in ipairs(b.kernels) do
    calls[#calls + 1] = ("%s: %d"):format(k.call, k.kernel)
    check("kernel of " .. k.call, k.seconds > 0 and k.moved > 0 and k.counted
          and #k.parts == 1 and k.parts[1].seconds == k.seconds)
    if k.call == "forward + backward" then
      flops = flops + k.flops
      check("its flops", math.abs(k.flops / 70 / plan.kernels[k.kernel].flops
            - 1) < 1e-9, k.flops)
    end
  end
  check("kernels", table.concat(calls, ", ") == "forward, chunks: 1, forward "
        .. "+ backward: 1, forward + backward: 2, decode, one token: 1",
        table.concat(calls, ", "))
  check("flops are theirs", b.rows[3].flops == flops)
  -- what they moved is what the arguments and results are, and what is kept
  check("bytes they moved", b.kernels[1].moved >= b.bytes
        and b.kernels[1].moved < 2 * b.bytes, b.kernels[1].moved)
  fails("a flag", 'plan: backward = "no": true or false', gdn.plan, gdn,
        { backward = "no" })
  fails("a flag", "bench: backward = 1: true or false", gdn.bench, gdn,
        { backward = 1 })
  fails("no size", "plan: K = 0: axis 'k' can be from 1", gdn.plan, gdn,
        { K = 0 })
  fails("seconds", "bench: seconds = x", gdn.bench, gdn, { seconds = "x" })
  fails("options", "there is no option 'X'", gdn.bench, gdn, { X = 1 })
end

-- ---- v:gradcheck ----

do
  local r = gdn:gradcheck { T = 6, K = 4, V = 4 }
  check("gradients", r.worst < 1e-5, tostring(r))
  check("each", r.d_q and r.d_g and r.d_initial_S, tostring(r))
  -- a gradient that is wrong by a part in a thousand is seen
  local wrong = setmetatable({}, { __index = function (_, name)
    if name ~= "backward" then
      local f = gdn[name]
      return type(f) == "function" and function (_, ...)
        return f(gdn, ...)
      end or f
    end
    return function (_, ...)
      local grad = gdn:backward(...)
      grad.k = grad.k * 1.001
      return grad
    end
  end })
  r = gdn.gradcheck(wrong, { T = 6, K = 4, V = 4 })
  check("a wrong one", r.d_k > 5e-4 and r.d_q < 1e-5, tostring(r))
end

-- Steps pass corners of max.
do
  local v = flin.variant { name = "corners", input = { q = "t k", k = "t k",
      v = "t v", g = "t : log_decay" }, state = { S = "k v", n = "k" },
    step = function (x, s)
      local S = flin.exp(x.g) * s.S + flin.outer(x.k, x.v)
      local n = flin.exp(x.g) * s.n + x.k
      return { S = S, n = n },
             flin.dot(x.q, S) / flin.max(flin.abs(flin.dot(x.q, n)), 1)
    end }
  for seed = 1, 8 do
    local r = v:gradcheck { seed = seed, B = 2, H = 2 }
    check("corners", r.worst < 1e-5, tostring(r))
    for _, row in ipairs(r.rows) do
      check("derivatives are there", not row.jumps, tostring(r))
    end
  end
end

-- A window counts its tokens: along the count the step jumps, and is not
-- compared; all else is.
do
  local window = flin.variant { name = "window", mask = function (i, j, p)
    if i < j or i - j >= 9 then return 0 end
    return p.b[j] * flin.exp(p.g_cumsum[i] - p.g_cumsum[j])
  end }
  local r = window:gradcheck { T = 12, K = 3, V = 3 }
  local jumps = {}
  for _, row in ipairs(r.rows) do
    jumps[row.name] = row.jumps
  end
  check("a count jumps", jumps.d_initial_position or jumps.d_initial_band_age,
        tostring(r))
  check("but nothing else", not (jumps.d_b or jumps.d_g or jumps.d_q
        or jumps.d_initial_band_k), tostring(r))
  check("the rest is compared", r.worst < 1e-5 and r.d_b < 1e-5, tostring(r))
end

-- ---- v:sizes ----

do
  local gla <const> = flin.layers.gla
  local size = gla:sizes { d = 1024, h = 4 }
  check("usual sizes", size.k == 128 and size.v == 256 and size.r == 16
        and size.d == 1024 and size.h == 4)
  check("sizes that are given", gla:sizes { d = 6, h = 2, k = 5 }.k == 5)
  for words, o in pairs {
    ["nothing says how long axis h is"] = { d = 8 },
    ["would usually be 1.5 long"] = { d = 6, h = 2 },
    ["there is no axis 'z'"] = { z = 1 },
    ["d = 0: a whole number"] = { d = 0, h = 1 },
  } do
    local ok, e = pcall(gla.sizes, gla, o)
    check(words, not ok and tostring(e):find(words, 1, true), tostring(e))
  end
end

-- ---- v:initial ----

do
  local retnet = flin.stdlib.retnet
  local t = retnet:initial { H = 3, K = 8, p = 4 }
  check("by head", t.g.shape[1] == 3 and #t.g.shape == 1
        and math.abs(t.g[3] - math.log(1 - 2^-7)) < 1e-7, t.g)
  check("along an axis", math.abs(t.theta[{ 2, 4 }] - 1e-3) < 1e-8, t.theta)
  check("of what has tokens none", t.q == nil)
  local angle = flin.stdlib.deltanet_rope:initial { H = 3, p = 4 }.theta
  check("of each token", #angle.shape == 2 and angle.shape[1] == 3
        and angle.shape[2] == 4 and angle:maxabs() == 0, angle)
  local a = flin.stdlib.mamba2:initial { H = 64, seed = 2 }
  local b = flin.stdlib.mamba2:initial { H = 64, seed = 2, dtype = "float64" }
  check("drawn", a.A_log:min() >= 0 and a.A_log:max() <= math.log(16)
        and a.A_log:max() > 2 and a.D:min() == 1 and a.D:max() == 1)
  check("of a seed", (a.A_log - b.A_log):maxabs() < 1e-6)
  check("nothing said", next(gdn:initial {}) == nil)
  local w = flin.layers.mamba2:initial { d = 6, h = 3, k = 4, v = 5 }
  check("of a layer", w.norm.shape[1] == 3 and w.norm.shape[2] == 5
        and w.Wx == nil and w.dt:max() < -2)
  local half = retnet:map { q = function (q) return q / 2 end }
  check("of what is mapped", half:initial { H = 2 }.g[1] == t.g[1])
  fails("an option", "initial: no option 'Q'", retnet.initial, retnet,
        { Q = 3 })
  fails("a size", "initial: H = 0: a whole number", retnet.initial, retnet,
        { H = 0 })
  local function bent(initial)
    return flin.variant {
      name = "x", input = { q = "t k", k = "t k", v = "t v", g = "" },
      state = { S = "k v" }, initial = initial,
      step = function (x, s)
        local S = flin.exp(x.g) * s.S + flin.outer(x.k, x.v)
        return { S = S }, flin.dot(x.q, S)
      end,
    }
  end
  local v = bent { g = function (at) return at.h > 1 and "x" or 2 end }
  check("a function's", v:initial { H = 1 }.g[1] == 2)
  fails("no number", "initial: 'g' gives a string", v.initial, v, { H = 2 })
  check("a query's", bent { q = function (at) return at.k end }:initial {
          H = 2, K = 3 }.q[{ 2, 3 }] == 3)
  fails("tokens of a layer", "initial: 'x' has tokens", flin.layer, {
    name = "y", input = { x = "t d" }, weight = { w = "d" },
    initial = { x = 1 },
    forward = function (x, w) return x.x * w.w end })
  fails("no input", "initial: there is no input 'z'", bent, { z = 1 })
  fails("no function", "initial: 'g' is a number or a function, not", bent,
        { g = true })
  fails("no table", "initial must be a table, not a number", bent, 3)
end

-- ---- v:mask, flin.heat_map ----

do
  local v = flin.stdlib.simple_gla
  local g = flin.full({ 1, 6, 1 }, -0.5)
  local m = v:mask { T = 6, g = g }
  local worst = 0
  for i = 1, 6 do
    for j = 1, 6 do
      local want = j <= i and math.exp(-0.5 * (i - j)) or 0
      worst = math.max(worst, math.abs(m[{ i, j }] - want))
    end
  end
  check("decay", worst < 1e-6, worst)
  fails("no key", "mask: hgrn2 has no input k", v.mask, flin.stdlib.hgrn2)
  fails("too many", "mask: T = 65537: a whole number from 1 to 65536", gdn.mask,
        gdn, { T = 65537 })
  check("other names", flin.stdlib.mamba2:mask { T = 4 }.rank == 2)
  check("ascii", flin.heat_map { { 0, 0.5 }, { 1, 0.05 } } == "  ++\n@@..",
        flin.heat_map { { 0, 0.5 }, { 1, 0.05 } })
  local colours = flin.heat_map({ { 0, 1 }, { 1, 0 } }, "true")
  check("half blocks", select(2, colours:gsub("▀", "")) == 2
        and not colours:find "\n", colours)
  fails("colours", "no colours 'x'", flin.heat_map, { { 1 } }, "x")
end

-- ---- what a variant says of itself ----

do
  local text = gdn:dag()
  check("dag", text:find "next S += u%d" and text:find "y +=", text)
  local v = flin.variant {
    name = "bent", input = { q = "t k", k = "t k", v = "t v" },
    state = { S = "k v" },
    step = function (x, s)
      local S = flin.tanh(s.S) + flin.outer(x.k, x.v)
      return { S = S }, flin.dot(x.q, S)
    end,
  }
  check("about", gdn.about:find "^Gated DeltaNet .*\nforget, erase"
        and gdn:map { q = function (q) return q end }.about == gdn.about
        and v.about:find "^Methods written in Lua", v.about)
  local d = gdn:describe()
  check("describe", d.inputs[1].shape == "[B, T, H, K]"
        and d.inputs[5].unit == "a natural logarithm"
        and d.states[1].shape == "[N, H, K, V]" and d.output.axes == "t v"
        and tostring(d):find("takes\n  q        [B, T, H, K]\n", 1, true),
        tostring(d))
  check("why serial", v.form:find "token by token: .*tanh", v.form)
  check("strata", flin.stdlib.retnet.form:find "1%. phi .*\n  2%. S",
        flin.stdlib.retnet.form)
  check("help", flin.help "dot":find("flin.dot(a, b [, axes]) -> value", 1,
                                     true), flin.help "dot")
  check("help of a variant", flin.help "gla":find("flin.stdlib.gla", 1, true))
  check("no help", flin.help "nonsense":find "nothing is called 'nonsense'")
end

count.finish()
