-- Steps that turn keys and queries by an angle which sums its increments. With
-- states that turn with it (all that reads and writes them is turned by it),
-- the angle's adjoint at the end of a chunk is taken from them; elsewhere it
-- is carried. Either way gradients are those of the float64 step.
local flin = require "flin"
local exp, dot, outer, rotate = flin.exp, flin.dot, flin.outer, flin.rotate
local count = require "support.count"
local expect <const> = count.expect

local function turned(x, s)
  local phi = s.phi + x.theta
  return phi, rotate(x.q, phi, "k"), rotate(x.k, phi, "k")
end

-- The state that a gated sum of k v leaves.
local function added(x, s, k)
  return exp(x.g) * s.S + outer(k, x.v)
end

-- inputs, states, axes: beside those of linear attention in turned features;
-- turns: whether its states turn with the angle.
local steps = {
  gated = { turns = true, step = function (x, s)
    local phi, q, k = turned(x, s)
    local S = added(x, s, k)
    return { S = S, phi = phi }, dot(q, S)
  end },
  ["some pairs alone"] = { turns = true, axes = { p = 3 },
                           step = function (x, s)
    local phi, q, k = turned(x, s)
    local S = added(x, s, k)
    return { S = S, phi = phi }, dot(q, S)
  end },
  ["the same for all tokens"] = { turns = true, theta = "p : angle",
                                  step = function (x, s)
    local phi, q, k = turned(x, s)
    local S = added(x, s, k)
    return { S = S, phi = phi }, dot(q, S)
  end },
  normalised = { turns = true, states = { n = "k" }, step = function (x, s)
    local phi, q, k = turned(x, s)
    local S, n = added(x, s, k), exp(x.g) * s.n + k
    return { S = S, n = n, phi = phi }, dot(q, S) / (1 + dot(q, n)^2)
  end },
  ["two states"] = { turns = true, states = { R = "k v" },
                     step = function (x, s)
    local phi, q, k = turned(x, s)
    local S, R = added(x, s, k), s.R + outer(k, x.v - dot(k, s.R) / 20)
    return { S = S, R = R, phi = phi }, dot(q, S) - dot(q, R)
  end },
  ["the key before"] = { turns = true, step = function (x, s)
    local phi, q, k = turned(x, s)
    local S = added(x, s, k) + outer(rotate(flin.prev(x.k), s.phi, "k"), x.v)
    return { S = S, phi = phi }, dot(q, S)
  end },
  ["the key before, turned as this"] = { turns = true, step = function (x, s)
    local phi, q, k = turned(x, s)
    local S = added(x, s, k) + outer(rotate(flin.prev(x.k), phi, "k"), x.v)
    return { S = S, phi = phi }, dot(q, S)
  end },
  ["a gate a key"] = { g = "t k : log_decay", step = function (x, s)
    local phi, q, k = turned(x, s)
    local S = added(x, s, k)
    return { S = S, phi = phi }, dot(q, S)
  end },
  ["a weight a key"] = { inputs = { w = "t k" }, step = function (x, s)
    local phi, q, k = turned(x, s)
    local S = added(x, s, x.w * k)
    return { S = S, phi = phi }, dot(q, S)
  end },
  ["read as it lies"] = { step = function (x, s)
    local phi, _, k = turned(x, s)
    local S = added(x, s, k)
    return { S = S, phi = phi }, dot(x.q, S)
  end },
  ["read both ways"] = { step = function (x, s)
    local phi, q, k = turned(x, s)
    local S = added(x, s, k)
    return { S = S, phi = phi }, dot(q + x.q, S)
  end },
  ["another angle"] = { inputs = { turn = "t p : angle" },
                        states = { psi = "p" }, step = function (x, s)
    local phi, _, k = turned(x, s)
    local psi = s.psi + x.turn
    local S = added(x, s, k)
    return { S = S, phi = phi, psi = psi }, dot(rotate(x.q, psi, "k"), S)
  end },
  ["seen besides"] = { step = function (x, s)
    local phi, q, k = turned(x, s)
    local S = added(x, s, k)
    return { S = S, phi = phi }, dot(q, S) + flin.sum(flin.cos(phi))
  end },
}

local dims = { B = 2, T = 70, H = 1, HV = 2, K = 12, V = 8 }
local CHUNK <const> = 16

local function check(name, v)
  dims.chunk = CHUNK
  local found = v:check(dims)
  dims.chunk, found.worst = nil, nil
  expect(not found.note, "%s: no chunk form: %s", name, found.note)
  for what, off in pairs(found) do
    expect(type(off) ~= "number" or off <= 1e-5, "%s: %s is off by %s", name,
           what, off)
  end
end

-- A loss of y alone, and of the states that are left alone.
local function check_losses(name, v)
  local inputs = v:random(dims)
  inputs.chunk = CHUNK
  local y, left = v:reference(inputs)
  for _, loss in ipairs { { dy = y }, { dstate = left } } do
    inputs.dy, inputs.dstate = loss.dy, loss.dstate
    local got, want = v:backward(inputs), v:reference_backward(inputs)
    local off = got.theta - want.theta
    expect((off * off):sum() <= 1e-10 * (want.theta * want.theta):sum(),
           "%s: from %s alone: d_theta is off", name,
           loss.dy and "y" or "states")
  end
end

-- As an angle, or as a sum that sin and cos look at.
local function check_step(name, of, declared)
  local inputs = { q = "t k", k = "t k : unit_norm", v = "t v",
                   g = of.g or "t : log_decay",
                   theta = of.theta or "t p : angle" }
  local states = { S = "k v", phi = "p" }
  for key, axes in pairs(of.inputs or {}) do inputs[key] = axes end
  for key, axes in pairs(of.states or {}) do states[key] = axes end
  if declared then
    for key, axes in pairs(states) do
      if axes == "p" then states[key] = "p : angle" end
    end
  end
  local v = flin.variant { name = "turning", input = inputs, state = states,
                           axes = of.axes, step = of.step }
  check(name, v)
  check_losses(name, v)
  local graph = v:dump("G", { K = 12, V = 8, chunk = CHUNK })
  expect((graph:find("next kept_phi", 1, true) ~= nil) == (of.turns == true),
         "%s: %s", name, of.turns and "its states turn with phi"
         or "its states do not turn with phi")
end

for name, of in pairs(steps) do
  check_step(name, of, true)
  check_step(name .. ", not declared", of, false)
end

-- ---- a long prompt, and what is decoded behind it ----

do
  local T <const>, MORE <const> = 4000, 30
  local v = flin.variant {
    name = "counted",
    input = { q = "t k", k = "t k : unit_norm", v = "t v",
              g = "t : log_decay", theta = "t p : angle" },
    state = { S = "k v", phi = "p" },
    step = function (x, s)
      local phi = s.phi + x.theta + 5
      local S = added(x, s, rotate(x.k, phi, "k"))
      return { S = S, phi = phi }, dot(rotate(x.q, phi, "k"), S)
    end,
  }
  local all = v:random { B = 1, T = T + MORE, H = 2, K = 4, V = 3 }
  local want, left = v:reference(all)
  local function tokens(from, n)
    local call = {}
    for name, x in pairs(all) do
      call[name] = flin.is_tensor(x) and x:narrow(2, from, n):contiguous() or x
    end
    return call
  end
  for _, inplace in ipairs { false, true } do
    local _, state = v:forward(tokens(1, T))
    local off, size = 0, 0
    for t = T + 1, T + MORE do
      local call = tokens(t, 1)
      call.state, call.inplace = state, inplace
      local y, new = v:step(call)
      local right = want:narrow(2, t, 1)
      local d = y:to "float64" - right
      state, off, size = new or state, off + (d * d):sum(),
                         size + (right * right):sum()
    end
    expect(off <= 1e-11 * size, "decoded behind %d tokens: off by %.1e", T,
           (off / size)^0.5)
    local phi = state.phi:to "float64" - left.phi
    -- float32 has an angle of 20,000 to 2e-3
    expect(phi:maxabs() <= 5e-5, "phi behind %d tokens: off by %.1e", T,
           phi:maxabs())
  end
end

count.finish()
