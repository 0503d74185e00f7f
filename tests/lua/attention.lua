-- flin.attention: compositions equal the variants written by hand, every
-- combination that makes sense agrees with its float64 step, and one that
-- makes none says why.
local flin = require "flin"
local decay, feature, transition = flin.decay, flin.feature_map,
                                   flin.transition

local count = require "support.count"
local expect <const> = count.expect

-- ---- the same as by hand ----

local SIZE <const> = { k = 16, v = 20, p = 4, n = 2, r = 4 }
local T <const> = 50

local function draw(input, seed)
  local shape = input.axes:find "t" and { 1, T, 2 } or { 2 }
  for axis in input.axes:gmatch "%a+" do
    if axis ~= "t" then shape[#shape + 1] = SIZE[axis] end
  end
  local x = flin.randn(shape, { seed = seed })
  if input.domain == "log_decay" then
    return x:map(function (u) return -math.log(1 + math.exp(-u)) end)
  elseif input.domain == "unit" or input.domain == "positive" then
    return x:map(function (u) return 1 / (1 + math.exp(-u)) end)
  end
  return input.domain == "unit_norm" and x:unit() or x
end

-- rename: from the composed variant's inputs to those of the one by hand.
local function same(name, options, rename, more)
  local composed, by_hand = flin.attention(options), flin.stdlib[name]
  local given, wanted = {}, more or {}
  for i, input in ipairs(composed.inputs) do
    local x = draw(input, i)
    given[input.name] = x
    wanted[rename and rename[input.name] or input.name] = x
  end
  local y = composed:reference(given)
  local off = (y - by_hand:reference(wanted)):maxabs()
  expect(off <= 1e-10, "%s: composed and by hand differ by %.1e", name, off)
end

local none = flin.zeros { 2 }
local MAMBA <const> = { q = "C", k = "B", v = "x" }
same("linear", { scale = 1 })
same("simple_gla", { decay = decay.gated(), scale = 1 })
same("gla", { decay = decay.gated { per = "key" }, scale = 1 })
same("lightning", { decay = decay.fixed(), features = feature.silu(),
                    scale = 1 })
same("retnet", { decay = decay.fixed(), features = feature.rope(),
                 scale = 1 })
same("mamba2", { decay = decay.exponential(), scale = 1 }, MAMBA,
     { D = none })
same("mlstm", { decay = decay.max_stabilized(), scale = 1 })
same("trapezoidal_gla", { scale = 1,
     decay = decay.gated { discretization = "trapezoidal" } })
same("deltanet", { transition = transition.delta_rule(), scale = 1 })
same("gated_deltanet", { decay = decay.gated(), scale = 1,
     transition = transition.delta_rule() })
same("kda", { decay = decay.gated { per = "key" }, scale = 1,
     transition = transition.delta_rule() })
same("deltaproduct", { decay = decay.gated(), scale = 1,
     transition = transition.delta_product { steps = 2 } })
same("deltanet_rope", { features = feature.rope { data_dependent = true },
     transition = transition.delta_rule(), scale = 1 })
same("rwkv7", { decay = decay.gated { per = "key" }, scale = 1,
     transition = transition.dplr() }, { q = "r", g = "w" })
same("mimo_deltanet", { transition = transition.delta_rule { mimo_rank = 4 },
     scale = 1 })

-- nil is K^(-1/2).
do
  local x = {}
  for i, input in ipairs(flin.attention({}).inputs) do
    x[input.name] = draw(input, i)
  end
  local y = flin.attention({}):reference(x)
  local plain = flin.attention({ scale = 1 }):reference(x)
  expect((y * 4 - plain):maxabs() <= 1e-10, "the default scale is K^(-1/2)")
end

-- ---- against the step ----

local DECAYS <const> = {
  decay.none(), decay.fixed(), decay.exponential(),
  decay.exponential { discretization = "trapezoidal" },
  decay.gated(), decay.gated { per = "key" },
  decay.gated { per = "key", discretization = "trapezoidal" },
  decay.max_stabilized(),
}
local FEATURES <const> = {
  feature.identity(), feature.l2norm(), feature.elu1(), feature.relu(),
  feature.silu(), feature.rope(), feature.rope { data_dependent = true },
  { feature.l2norm(), feature.rope { data_dependent = true } },
  feature.map(function (u) return flin.tanh(u) end), feature.taylor(),
}
-- A delta rule diverges unless beta |k|^2 < 2: maps that keep or make norm 1.
local OF_NORM_1 <const> = {
  feature.identity(), feature.l2norm(), feature.rope(),
  feature.rope { data_dependent = true },
  { feature.elu1(), feature.l2norm() },
  { function (u) return flin.tanh(u) end, feature.l2norm(), feature.rope() },
}
local TRANSITIONS <const> = {
  transition.one_step_gd(), transition.one_step_gd { mimo_rank = 2 },
  transition.delta_rule(), transition.delta_rule { mimo_rank = 2 },
  transition.delta_product { steps = 3 }, transition.dplr(),
  transition.preconditioned_gd(),
  transition.preconditioned_gd { mimo_rank = 2 },
  transition.custom(function (c)
    return c.S + flin.outer(c.k, c.v - 0.5 * flin.dot(c.k, c.S))
  end),
}

-- An error that says why, at this line, is no failure; any other is.
local function composed(d, f, t)
  local ok, v = pcall(function ()
    local v = flin.attention { decay = d, features = f, transition = t }
    return v
  end)
  if ok then
    return v
  end
  expect(tostring(v):find "attention.lua:%d+: flin.attention: .+cannot"
         or tostring(v):find "attention.lua:%d+: flin.attention: .+can only",
         "%s", v)
end

-- Every decay with every transition; the features in turn, and the gradients
-- of every fifth.
local turn, compiled = 0, 0
for _, d in ipairs(DECAYS) do
  for _, t in ipairs(TRANSITIONS) do
    turn = turn + 1
    local features = t.error_feedback and OF_NORM_1 or FEATURES
    local f = features[turn % #features + 1]
    local v = composed(d, f, t)
    if v then
      compiled = compiled + 1
      local found = v:check { B = 1, T = 45, H = 2, K = 16, V = 20,
                              chunk = 16, seed = turn,
                              backward = turn % 5 == 0 }
      local off = math.max(found.y, found.state, found.step)
      expect(off <= 1e-5, "%s + %s + %s is off by %.1e", d.name,
             f.name or "several", t.name, off)
      expect(found.worst <= 1e-4, "%s + %s + %s: gradients off by %.1e",
             d.name, f.name or "several", t.name, found.worst)
      expect(not found.note or f.taylor, "%s + %s + %s: %s", d.name,
             f.name or "several", t.name, found.note)
    end
  end
end
expect(compiled >= 45, "only %d combinations compile", compiled)

-- Every feature with a plain sum, gated.
for _, f in ipairs(FEATURES) do
  local v = flin.attention { decay = decay.gated(), features = f }
  local found = v:check { B = 1, T = 45, H = 2, K = 16, V = 20, chunk = 16,
                          backward = false }
  expect(found.worst <= 1e-5, "feature %s is off by %.1e", f.name or "several",
         found.worst)
end

-- ---- what makes no sense ----

local function refused(pattern, f)
  local ok, message = pcall(f)
  expect(not ok and tostring(message):find(pattern, 1, true),
         "wanted an error with '%s', got %s", pattern, message)
end

refused("the trapezoidal rule cannot go with delta_rule", function ()
  local v = flin.attention {
    decay = decay.gated { discretization = "trapezoidal" },
    transition = transition.delta_rule() }
  return v
end)
refused("max_stabilized cannot go with delta_rule", function ()
  local v = flin.attention { decay = decay.max_stabilized(),
                             transition = transition.delta_rule() }
  return v
end)
refused("feature_map.taylor has features of two keys", function ()
  local v = flin.attention { decay = decay.gated { per = "key" },
                             features = feature.taylor() }
  return v
end)
refused("features: flin.feature_map.relu is to be called: relu()",
        function ()
  local v = flin.attention { features = feature.relu }
  return v
end)
refused('decay is "gated": what an entry of flin.decay returns', function ()
  local v = flin.attention { decay = "gated" }
  return v
end)
refused("decay.gated: per = keys", function ()
  local d = decay.gated { per = "keys" }
  return d
end)
refused("decay.gated: no option 'pre'", function ()
  local d = decay.gated { pre = "key" }
  return d
end)
refused("transition.delta_product: steps = 0", function ()
  local t = transition.delta_product { steps = 0 }
  return t
end)
refused("flin.attention: no option 'feature'", function ()
  local v = flin.attention { feature = feature.l2norm() }
  return v
end)
refused("flin.stdlib has no 'gda'", function () return flin.stdlib.gda end)

-- Updates one after another, of any number, in chunks. Where decays are between
-- them they are written out: of very many token by token.
do
  for _, steps in ipairs { 8, 40 } do
    local v <const> = flin.attention {
      decay = decay.gated {}, features = feature.l2norm {},
      transition = transition.delta_product { steps = steps },
    }
    local r = v:check { B = 1, T = 25, H = 1, K = 6, V = 5, chunk = 8 }
    expect(not v.note and r.worst < 1e-5, "%d steps: %s, off by %s", steps,
           v.note, r.worst)
  end
  local function decayed(steps)
    return flin.variant {
      name = "decayed", axes = { n = steps },
      input = { q = "t k", k = "t n k : unit_norm", v = "t n v",
                beta = "t n : unit", g = "t : log_decay" },
      state = { S = "k v" },
      step = function (x, s)
        local S = s.S
        for j = 1, steps do
          local k, v = flin.at(x.k, "n", j), flin.at(x.v, "n", j)
          S = flin.exp(x.g) * S
          S = S + flin.outer(flin.at(x.beta, "n", j) * k, v - flin.dot(k, S))
        end
        return { S = S }, flin.dot(x.q, S)
      end,
    }
  end
  local v <const> = decayed(8)
  local r = v:check { B = 1, T = 25, H = 1, K = 6, V = 5, chunk = 8 }
  expect(not v.note and r.worst < 1e-5, "8 decayed steps: %s, off by %s",
         v.note, r.worst)
  local many <const> = decayed(14)
  local x = many:random { B = 1, T = 9, H = 1, K = 4, V = 4 }
  local off = (many:forward(x)
               - many:reference(x):to "float32"):maxabs()
  expect(tostring(many.note):find "too many terms" and off < 1e-5,
         "14 decayed steps: %s, off by %s", many.note, off)
end

count.finish()
