-- Which parts of a layer run in the steps of others: the integer program's
-- choice costs no more than a walk that tries part after part, nor than the
-- forced plans by the prices of usual calls; what it did not choose is dearer;
-- and where a value is read by a rule and by others it may be in both places.
local flin = require "flin"
local dot <const> = flin.dot

local passed, failed = 0, 0
local function check(what, ok, found)
  if ok then passed = passed + 1 return end
  failed = failed + 1
  print(("FAIL %s (%s)"):format(what, tostring(found)))
end

local more <const> = {
  gla = { r = 16 }, gated_deltanet = { w = 4 }, mamba2 = { w = 4 },
  kda = { w = 4, r = 32, s = 32 }, rwkv7 = { e = 16, f = 16, g = 16 },
}

-- A price that prices cannot tell from the chosen one.
local least <const> = -0.01

local function check_choice(what, plan)
  local choice <const> = plan.choice
  check(what .. " is proved", choice.proved)
  check(what .. " costs no more than part by part",
        choice.predicted <= choice.walk, choice.predicted / choice.walk)
  check(what .. " says what else there was",
        #choice > 0 and choice.offered > #plan.parts, choice.offered)
  for _, other in ipairs(choice) do
    check(what .. ", not " .. other.name,
          other.more >= least * choice.predicted, other.more)
  end
end

for name, axes in pairs(more) do
  for _, size in ipairs { { d = 64, h = 1, k = 64, v = 64 },
                          { d = 512, h = 4, k = 128, v = 128 } } do
    for _, machine in ipairs { "cpu", "h200" } do
      local sizes <const> = { machine = machine, T = 512 }
      for _, t in ipairs { size, axes } do
        for axis, n in pairs(t) do sizes[axis] = n end
      end
      check_choice(("%s, d %d, %s"):format(name, size.d, machine),
                   flin.layers[name]:plan(sizes))
    end
  end
end

-- Values of two numbers a head that are wide in memory, and read elsewhere.
local shared <const> = flin.layer {
  name = "shared", input = { x = "t d" },
  weight = { s = "d h", r = "d h", u = "h k", z = "h v", Wk = "h k d",
             Wv = "h v d", Wo = "h v d", g = "h" },
  forward = function (x, w)
    local k <const> = flin.silu(dot(x.x, w.s)) * w.u
    local v <const> = flin.tanh(dot(x.x, w.r)) * w.z
    local q <const> = flin.tanh(dot(x.x, w.r)) * w.u
    local y <const> = flin.stdlib.simple_gla {
      q = q, k = k, v = v, g = -flin.exp(w.g) * flin.sigmoid(dot(x.x, w.s))
    }
    return dot(y, w.Wo) + dot(k, w.Wk) + dot(q, w.Wk) + dot(v, w.Wv)
  end,
}
local sizes <const> = { d = 8, h = 2, k = 64, v = 64, backward = true }
for _, machine in ipairs { "cpu", "h200" } do
  sizes.machine = machine
  sizes.h = machine == "cpu" and 2 or 64
  local plan <const> = shared:plan(sizes)
  check_choice("shared, " .. machine, plan)
  check("what is read twice is computed twice on " .. machine,
        plan.choice.predicted < 0.99 * plan.choice.walk
        and plan.text:find " again", plan.text)
end
for _, plan in ipairs { false, "separate", "fused" } do
  local worst <const> = shared:check { d = 8, h = 2, k = 64, v = 64, T = 70,
                                       B = 2, plan = plan or nil }.worst
  check("its numbers, plan " .. tostring(plan), worst < 1e-5, worst)
end

-- A projection, a scan of a vector and a gate: what took least on an H200, from
-- 512 tokens to 65,536, is the product by itself, and the scan with all else.
local scan <const> = flin.variant {
  name = "scan", input = { v = "t v", k = "t", g = "t : log_decay" },
  state = { s = "v" },
  step = function (x, s)
    local new <const> = flin.exp(x.g) * s.s + x.k * x.v
    return { s = new }, new
  end,
}
local projected <const> = flin.layer {
  name = "projected", input = { x = "t d", k = "t", g = "t", gate = "t v" },
  weight = { W = "d v" },
  forward = function (x, w)
    local y <const> = scan { v = dot(x.x, w.W), k = x.k,
                             g = flin.logsigmoid(x.g) }
    return y * flin.silu(x.gate)
  end,
}
for _, B in ipairs { 1, 4, 16 } do
  for _, T in ipairs { 512, 2048, 4096 } do
    local plan <const> = projected:plan { d = 256, v = 64, B = B, T = T,
                                          machine = "h200" }
    check(("projected, B %d T %d: its parts"):format(B, T), #plan.parts == 2,
          #plan.parts)
    for _, way in ipairs { "separate", "whole" } do
      local one <const> = projected:plan { d = 256, v = 64, B = B, T = T,
                                           machine = "h200", plan = way }
      check(("projected, B %d T %d: %s costs more"):format(B, T, way),
            one.predicted > plan.predicted, one.predicted)
    end
  end
end

print(("%d passed, %d failed"):format(passed, failed))
