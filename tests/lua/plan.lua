-- v:plan: chunk sizes, times by role, what was weighed; plans are kept.
local flin = require "flin"
local count = require "support.count"
local expect <const> = count.expect

local function same(a, b)
  return (a - b):maxabs() == 0
end

local function random(v, T, d)
  local x = {}
  for _, input in ipairs(v.inputs) do
    local shape = { 1, T, 1 }
    for axis in input.axes:gmatch "%S+" do
      shape[#shape + 1] = axis ~= "t" and (axis == "n" and 2 or d) or nil
    end
    local t = flin.randn(table.unpack(shape)) * (d ^ -0.5)
    x[input.name] = input.domain == "log_decay" and -t * t or t
  end
  return x
end

-- The chunk is the cost model's choice: another for other sizes, the same in
-- calls and in plans, whatever the length.
do
  local seen = {}
  for _, name in ipairs { "gated_deltanet", "mlstm", "deltaproduct" } do
    local v = flin.stdlib[name]
    for _, d in ipairs { 16, 128 } do
      local plan = v:plan { K = d, V = d }
      seen[plan.chunk] = true
      expect(#plan.weighed == 4, "%s: chunk sizes are weighed", name)
      for _, w in ipairs(plan.weighed) do
        expect(w.chunk ~= plan.chunk or w.seconds < math.huge,
               "%s: the chosen chunk has a price", name)
      end
      local x = random(v, 150, d)
      local y, state = v:forward(x)
      x.chunk = plan.chunk
      local y2, state2 = v:forward(x)
      expect(same(y, y2), "%s: a call takes chunks of %d", name, plan.chunk)
    end
  end
  expect(next(seen, next(seen)), "more than one chunk size is chosen")
end

-- What a kernel holds: gradients are summed up in one tile, a product's result
-- takes the place of what it was made of. Four reads a token make 256 rows of
-- 64 tokens: their scores, keys and values are more than there is.
do
  local v = flin.stdlib.mimo_deltanet
  local o = { K = 128, V = 128, chunk = 32, backward = true, machine = "h200" }
  local kernels = v:plan(o).kernels
  expect(kernels[#kernels].part_of == 2, "sums in one tile: a kernel a pass")
  o.chunk = 64                          -- cut further, ranks as rows
  for _, kernel in ipairs(v:plan(o).kernels) do
    expect(not kernel.why, "larger than the model's: %s", kernel.why)
  end
  v = flin.stdlib.mamba3_mimo
  o.K, o.V = 256, 256
  local ok, message = pcall(v.plan, v, o)
  expect(not ok and tostring(message)
         :find "take %d+ KB; a kernel on h200 has 227", "too large: %s",
         message)
end

-- A sequence in two calls is the whole one, to rounding.
do
  local v = flin.stdlib.gated_deltanet
  local x = random(v, 150, 32)
  local y = v:forward(x)
  local first, second = {}, {}
  for name, t in pairs(x) do
    first[name], second[name] = t:narrow(2, 1, 33), t:narrow(2, 34, 117)
  end
  local y1, state = v:forward(first)
  second.initial_state = state
  local y2 = v:forward(second)
  local gap = (y:narrow(2, 34, 117) - y2):maxabs()
  expect(gap < 1e-5, "in two calls: %g", gap)
end

-- Times: by role, and their sum is the plan's.
for _, machine in ipairs { "cpu", "h200" } do
  local plan = flin.stdlib.gated_deltanet:plan { K = 64, V = 64,
    backward = true, machine = machine }
  local sum = 0
  for _, k in ipairs(plan.kernels) do
    expect(k.load > 0 and k.ahead > 0 and (k.serial > 0
           or k.kind == "token"), "%s: a role without time", machine)
    expect(k.seconds >= math.max(k.load, k.serial, k.ahead),
           "%s: a kernel is faster than one of its roles", machine)
    expect((k.ahead_groups ~= nil)
           == (machine == "h200" and k.kind ~= "token"), "%s: warpgroups",
           machine)
    sum = sum + k.seconds
  end
  expect(math.abs(sum / plan.predicted - 1) < 0.2,
         "%s: the kernels take %g, the plan %g", machine, sum, plan.predicted)
  local text = tostring(plan)
  expect(text:find "chunk sizes weighed: %d+: [%d.]+ ns", "what was weighed")
  expect(text:find(machine == "cpu"
         and "load [%d.]+, ahead [%d.]+, serial [%d.]+"
         or "memory [%d.]+, instructions [%d.]+"), "by role")
end
-- What the third of a token's writes finds is a sum of the two before, which
-- are multiplied by its key one by one; no row of it, as it reads of the state
-- before them, too.
local steps <const> = flin.variant {
  name  = "steps",
  axes  = { n = 3 },
  input = { q = "t k", k = "t n k", v = "t n v", g = "t : log_decay" },
  state = { S = "k v" },
  step  = function (x, s)
    local S = s.S
    for j = 1, 3 do
      local k, v = flin.at(x.k, "n", j), flin.at(x.v, "n", j)
      local error = v - flin.dot(k, S) - flin.dot(k, s.S)
      S = S + flin.outer(k, error)
    end
    return { S = flin.exp(x.g) * S }, flin.dot(x.q, S)
  end,
}
expect(not steps:dump("C", { K = 8, V = 16 }):find "# i k v\n",
       "writes of a token are no matrix of each")
expect(flin.stdlib.linear:dump("P", { K = 16, V = 16 }):find "serial [%d.]+",
       "-d P shows the roles")
-- Two states that read each other, and are not turned by an angle.
local shear <const> = flin.variant {
  name  = "shear",
  input = { q = "t k", k = "t k", v = "t v", a = "t", b = "t" },
  state = { S = "k v", M = "k v" },
  step  = function (x, s)
    local M = x.a * s.M + x.b * s.S + flin.outer(x.k, x.v)
    return { S = x.b * s.S - x.a * s.M, M = M }, flin.dot(x.q, M)
  end,
}
-- What a call launches; where it is not on wgmma, which limit is why. A plan is
-- that of a call, for what no kernel can hold, too.
do
  local function plan_of(name, size, backward)
    return tostring(flin.stdlib[name]:plan {
      machine = "h200", K = size, V = size, backward = backward })
  end
  local text = plan_of("simple_gla", 128, true)
  expect(text:find "chunk 64\n", "the chunk of calls")
  expect(text:find("kernel 1: k0_forward %(forward%).-\n  wgmma; 16 warps: "
                   .. ".*matrix 8, ahead 4;.-\n    S  .-stored\n"),
         "the forward one makes its scores ahead, and stores its states")
  expect(text:find "k1_reverse %(reverse%).-\n  wgmma; 1%d warps: load 1, .*"
         .. "matrix 8; .* registers; .* buffers; about %d+ instructions",
         "one from a schedule")
  local b200 = flin.stdlib.simple_gla:plan { machine = "b200", K = 128, V = 128,
                                             backward = true }
  expect(b200.kernels[1].form == "tcgen05" and b200.kernels[1].tensor == 64
         and tostring(b200):find "k0_forward.-64 columns of tensor memory",
         "products of a B200")
  expect(flin.stdlib.simple_gla:plan { machine = "b200", chunk = 32 }
         .kernels[1].form == "mma.sync", "chunks of too few rows")
  expect(tostring(shear:plan { machine = "h200", backward = true }):find
         "without wgmma: %%%d+ = unit: no such instruction yet",
         "the limit of one that has none")
  expect(plan_of("kda", 256):find "kernel 2: k1_forward.-\n  wgmma",
         "K = 256: two kernels")
  expect(plan_of("kda", 512):find "one kernel a pass", "K = 512")
  -- cut as for few heads where 96 leave multiprocessors idle, as measured
  local cut <const> = { kda = 2, hgrn2 = 2, rwkv7 = 2, gdn2 = 1,
    precond_kda = 3, gla = 2, gated_deltanet = 1 }
  for name, kernels in pairs(cut) do
    local plan = flin.stdlib[name]:plan { machine = "h200", K = 128, V = 128 }
    expect(#plan.kernels == kernels, "%s of 96 heads: %d kernels", name,
           #plan.kernels)
  end
end
do
  local sizes <const> = { K = 64, V = 64 }
  local text = flin.stdlib.simple_gla:dump("K", sizes)
  for kernel = 0, 2 do
    expect(text:find("\nschedule " .. kernel .. " sm_90a "),
           "-d K has kernel %d", kernel)
  end
  expect(text:find "\nschedule 0 sm_90a [^\n]* ahead 1 .*groups 2",
         "-d K has roles")
  text = shear:dump("K", { K = 32, V = 32, chunk = 32 })
  expect(text:find "# no schedule: %%%d+ = %w+: ", "-d K says what is missing")
end
do                                      -- what does not fit says so
  local plan = flin.stdlib.kda:plan { K = 512, V = 512,
    backward = true, machine = "h200" }
  expect(plan.chunk < 64, "chunk %d", plan.chunk)
  expect(tostring(plan):find "weighed: 64: no kernel can hold its parts",
         "why not 64")
end

-- Plans are kept: asked for again, nothing is made, no memory is taken.
do
  local v = flin.stdlib.rwkv6
  local ask = { K = 32, V = 32, backward = true }
  local first = v:plan(ask)
  local function pages()
    local f = io.open "/proc/self/statm"
    local n = f and tonumber(f:read "a":match "%d+")
    if f then f:close() end
    return n
  end
  local drawn, before = v:plan { backward = true, format = "svg" }
  for i = 1, 200 do
    expect(v:plan(ask).seconds == first.seconds, "made again")
    expect(v:plan { backward = true, format = "svg" } == drawn, "drawn again")
    if i == 20 then
      collectgarbage()
      before = pages()
    end
  end
  collectgarbage()
  expect(not before or pages() - before < 512, "%d pages more",
         before and pages() - before or 0)
end

-- A decay of each key that may be 0 has another form, and is told of.
do
  local function told(domain, gate)
    local v = flin.variant {
      name = "gated", state = { S = "k v" },
      input = { q = "t k", k = "t k", v = "t v", a = "t k : " .. domain },
      step = function (x, s)
        local S = gate(x.a) * s.S + flin.outer(x.k, x.v)
        return { S = S }, flin.dot(x.q, S)
      end }
    return v:plan { K = 64, V = 64, machine = "h200", backward = true }
            .text:find("exp(x.a) with a : log_decay", 1, true)
  end
  expect(told("unit", function (a) return a end), "a gate that may be 0")
  expect(not told("log_decay", flin.exp), "one that may not")
end

-- Why more ranks than a warp has lanes are no rows.
do
  local v = flin.attention {
    decay = flin.decay.gated {}, features = flin.feature_map.l2norm {},
    transition = flin.transition.delta_product { steps = 33 } }
  local text = v:plan { K = 32, V = 32, machine = "h200" }.text
  expect(text:find("33 ranks of a token: of up to 32", 1, true),
         "33 steps say why they are off wgmma: %s", text)
end

count.finish()
