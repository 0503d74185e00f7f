-- A token at a time, states in float32 in place: whichever axis of a state lies
-- along its rows in memory, summed along one or both, of ranks, beside other
-- states; of sizes that fill a block, or do not; with heads that share keys; in
-- pools, by index; and some tokens that may be taken back.
--   flin tests/cuda/steps.lua [NAME]
local flin = require "flin"
local exp, dot, outer = flin.exp, flin.dot, flin.outer
local suite = require "suite"
local expect <const>, relative <const> = suite.expect, suite.relative
local only = ...

suite.gpu()

local function erasing(x, S)
  S = exp(x.g) * S
  return S + outer(x.k, x.v - dot(x.k, S))
end

local input = { q = "t k", k = "t k : unit_norm", v = "t v",
                g = "t k : log_decay" }

local function with(more)
  local all = {}
  for name, axes in pairs(input) do all[name] = axes end
  for name, axes in pairs(more) do all[name] = axes end
  return all
end

-- What a state that lies so goes through.
local made = {
  keys = function (order)
    return { input = input, state = { S = order }, step = function (x, s)
      local S = erasing(x, s.S)
      return { S = S }, dot(x.q, S)
    end }
  end,
  both = function (order)
    return { input = with { w = "t v" }, state = { S = order },
             step = function (x, s)
      local S = erasing(x, s.S)
      return { S = S }, dot(x.q, S) * (1 + dot(dot(x.w, S), x.q))
    end }
  end,
  values = function (order)
    return { input = { q = "t v", k = "t k", v = "t v", g = "t : log_decay" },
             state = { S = order }, step = function (x, s)
      local S = exp(x.g) * s.S + outer(x.k, x.v)
      return { S = S }, dot(x.q, S)
    end }
  end,
  ranks = function (order)
    return { axes = { r = 3 }, state = { S = order },
             input = { q = "t r k", k = "t r k : unit_norm", v = "t r v",
                       o = "t r" }, step = function (x, s)
      local S = s.S + 0.3 * dot(x.k, x.v - dot(x.k, s.S, "k"), "r")
      return { S = S }, dot(x.o, dot(x.q, S, "k"), "r")
    end }
  end,
  several = function (order)
    return { input = with { p = "t k : unit_norm" },
             state = { S = order, M = order, n = "k" },
             step = function (x, s)
      local M = 0.9 * s.M - outer(x.k, x.v - dot(x.p, s.S))
      local S, n = exp(x.g) * s.S - 0.5 * M, exp(x.g) * s.n + x.k
      return { S = S, M = M, n = n }, dot(x.q, S) / (2 + dot(n, n))
    end }
  end,
}

-- Relative to what the float64 step makes of the same states. gate: what the
-- first head's gates are.
local function check(name, v, sizes)
  local B, H, T = 2, 2, 3
  local x = { B = B, T = T, H = 1, HV = H }
  for axis, n in pairs(sizes) do x[axis] = axis ~= "gate" and n or nil end
  x = v:random(x)
  if sizes.gate then
    local some = x.g:narrow(3, 1, 1)
    some:copy(flin.zeros(some.shape) + sizes.gate)
  end
  local _, shape = v:reference(x)
  local pool, states, index = {}, {}, { 3, 1 }
  for state, t in pairs(shape) do
    local axes = { table.unpack(t.shape, 2) }
    pool[state] = flin.randn({ 5, table.unpack(axes) }, { seed = #state })
    states[state] = flin.zeros { B, table.unpack(axes) }
    for b, e in ipairs(index) do
      states[state]:narrow(1, b, 1):copy(pool[state]:narrow(1, e + 1, 1))
    end
  end
  local function first(n)
    local c = {}
    for key, t in pairs(x) do
      c[key] = flin.is_tensor(t) and t:narrow(2, 1, n) or t
    end
    c.initial_state = states
    return c
  end
  local function near(what, got, want)
    local off = relative(got, want)
    expect(off <= 1e-5, "%s: %s is off by %.1e", name, what, off)
  end

  local y, left = v:reference(first(1))
  local call = suite.on_gpu(first(1))
  call.initial_state, call.inplace = nil, true
  call.state = suite.on_gpu(states)
  local got, own = v:step(call)
  near("y", got, y)
  for state, t in pairs(left) do near(state, own[state], t) end

  call.inplace, call.state = nil, suite.on_gpu(pool)
  call.state_index = flin.tensor(index, { dtype = "int32" }):to "cuda"
  near("y by an index", v:step(call), y)
  for state, t in pairs(left) do
    for b, e in ipairs(index) do
      near(state .. " of a pool", call.state[state]:narrow(1, e + 1, 1),
           t:narrow(1, b, 1))
    end
  end

  y, left = v:reference(first(T))
  call = suite.on_gpu(first(T))
  call.initial_state, call.state = nil, suite.on_gpu(states)
  got, own = v:verify(call)
  near("y of some tokens", got, y)
  for state, t in pairs(left) do
    near(state .. " behind the last",
         own[state]:narrow(2, T, 1):to "cpu":reshape(t.shape), t)
  end
end

-- Those that fill warps, and others.
local sizes = {
  keys = { { K = 64, V = 128 }, { K = 20, V = 7 },
           { K = 32, V = 32, gate = -1e9 }, { K = 32, V = 32, gate = -1 / 0 } },
  both = { { K = 32, V = 48 } },
  values = { { K = 40, V = 32 } },
  ranks = { { K = 16, V = 64 } },
  several = { { K = 64, V = 32 }, { K = 24, V = 8 } },
}

for name, make in pairs(made) do
  for _, order in ipairs { "k v", "v k" } do
    for _, at in ipairs((only or name) == name and sizes[name] or {}) do
      local v = make(order)
      v.name = name
      check(("%s, [%s], K %d, V %d, %s"):format(name, order, at.K, at.V,
                                                at.gate or "gates"),
            flin.variant(v), at)
    end
  end
end

suite.finish()
