-- Steps that somebody may write, each beside gates of several kinds: all of
-- their kernels on Hopper have roles. Plans tell, no GPU is asked.
--   flin tests/cuda/coverage.lua            forward of all, both ways of some
--   flin tests/cuda/coverage.lua all [NAME] both ways of all, or of those named
local flin = require "flin"
local suite = require "suite"
local dot, outer, exp, prev = flin.dot, flin.outer, flin.exp, flin.prev
local sigmoid, l2norm = flin.sigmoid, flin.l2norm
local where, lt = flin.where, flin.lt

-- Their input, if they have one, and what a state is multiplied by.
local GATES <const> = {
  { "none", nil, function () return 1 end },
  { "number", nil, function () return 0.95 end },
  { "head", ": log_decay", exp },
  { "token", "t : log_decay", exp },
  { "key", "t k : log_decay", exp },
}

-- Inputs beside q, k, v and the gate's, states beside S, and the step: what is
-- left and y, of what the gate has left of S.
local STEPS <const> = {
  ["plain"] = { {}, {}, function (x, _, S)
    return { S = S + outer(x.k, x.v) }, function (n) return dot(x.q, n.S) end
  end },
  ["delta"] = { { b = "t : unit" }, {}, function (x, _, S)
    return { S = S + outer(x.b * x.k, x.v - dot(x.k, S)) }
  end },
  ["twice the delta"] = { { b = "t : unit" }, {}, function (x, _, S)
    return { S = S + outer(2 * x.b * x.k, x.v - dot(x.k, S)) }
  end },
  ["delta of keys"] = { { b = "t k : unit" }, {}, function (x, _, S)
    return { S = S + outer(x.b * x.k, x.v - dot(x.k, S)) }
  end },
  ["erased elsewhere"] = { { b = "t : unit", e = "t k : unit_norm" }, {},
    function (x, _, S)
      return { S = S - outer(x.b * x.e, dot(x.e, S)) + outer(x.k, x.v) }
    end },
  ["keys that are mixed"] = { { w = "k : unit" }, {}, function (x, _, S)
    return { S = S + outer(x.w * x.k + (1 - x.w) * prev(x.k), x.v) }
  end },
  ["mixed, and delta"] = { { w = "k : unit", b = "t : unit" }, {},
    function (x, _, S)
      local k = l2norm(x.w * x.k + (1 - x.w) * prev(x.k))
      return { S = S + outer(x.b * k, x.v - dot(k, S)) }
    end },
  ["convolved"] = { { w = "k", w2 = "k", w3 = "k" }, {}, function (x, _, S)
    local k = x.w * x.k + x.w2 * prev(x.k) + x.w3 * prev(prev(x.k))
    return { S = S + outer(flin.silu(k), x.v) }
  end },
  ["averaged keys"] = { { a = "t k : unit" }, { m = "k" },
    function (x, s, S)
      local m = x.a * s.m + (1 - x.a) * x.k
      return { S = S + outer(m, x.v), m = m }
    end },
  ["averaged by tokens"] = { { a = "t : unit" }, { m = "k" },
    function (x, s, S)
      local m = x.a * s.m + (1 - x.a) * x.k
      return { S = S + outer(m, x.v), m = m }
    end },
  ["averaged by a number"] = { { b = "t : unit" }, { m = "k" },
    function (x, s, S)
      local m = 0.9 * s.m + 0.1 * x.k
      local k = l2norm(m)
      return { S = S + outer(x.b * k, x.v - dot(k, S)), m = m }
    end },
  ["averaged by a constant"] = { { a = "v : unit" }, { m = "v" },
    function (x, s, S)
      local m = x.a * s.m + (1 - x.a) * x.v
      return { S = S + outer(x.k, x.v - m), m = m }
    end },
  ["averaged values"] = { { a = "t v : unit" }, { m = "v" },
    function (x, s, S)
      local m = x.a * s.m + (1 - x.a) * x.v
      return { S = S + outer(x.k, x.v), m = m }, function (n)
        return dot(x.q, n.S) + m
      end
    end },
  ["scaled by squares"] = { {}, { A = "k" },
    function (x, s, S)
      local A = 0.95 * s.A + 0.05 * x.k * x.k
      return { S = S + outer(x.k * flin.rsqrt(A + 1e-3), x.v), A = A }
    end },
  ["normalised"] = { {}, { z = "k" }, function (x, s, S)
    local k = flin.relu(x.k) + 1e-3
    local z = 0.9 * s.z + k
    return { S = S + outer(k, x.v), z = z }, function (n)
      return dot(x.q, n.S) / (flin.abs(dot(x.q, z)) + 1e-3)
    end
  end },
  ["a mean"] = { {}, { n = "" }, function (x, s, S)
    local count = s.n + 1
    return { S = S + outer(x.k, x.v), n = count }, function (n)
      return dot(x.q, n.S) / count
    end
  end },
  ["two scales"] = { { h = "t : log_decay" }, { R = "k v" },
    function (x, s, S)
      local R = exp(x.h) * s.R + outer(x.k, x.v)
      return { S = S + outer(x.k, x.v), R = R }, function (n)
        return dot(x.q, n.S + R)
      end
    end },
  ["differential"] = { { q2 = "t k", k2 = "t k", c = "" }, { R = "k v" },
    function (x, s, S)
      local R = 0.9 * s.R + outer(x.k2, x.v)
      return { S = S + outer(x.k, x.v), R = R }, function (n)
        return dot(x.q, n.S) - x.c * dot(x.q2, R)
      end
    end },
  ["a state of reads"] = { {}, { R = "k v" }, function (x, s, S)
    S = S + outer(x.k, x.v)
    local R = 0.9 * s.R + outer(x.k, dot(x.q, S))
    return { S = S, R = R }, function () return dot(x.q, R) end
  end },
  ["read before"] = { { u = "k" }, {}, function (x, s, S)
    return { S = S + outer(x.k, x.v) }, function ()
      return dot(x.q, s.S) + dot(x.q * x.u, x.k) * x.v
    end
  end },
  ["two reads"] = { { q2 = "t k" }, {}, function (x, _, S)
    return { S = S + outer(x.k, x.v) }, function (n)
      return dot(x.q, n.S) - 0.3 * dot(x.q2, n.S)
    end
  end },
  ["norm and gate"] = { { o = "t v", w = "v" }, {}, function (x, _, S)
    return { S = S + outer(x.k, x.v) }, function (n)
      return x.w * flin.rms_norm(dot(x.q, n.S)) * flin.silu(x.o)
    end
  end },
  ["reset"] = { { r = "t" }, {}, function (x, _, S)
    return { S = where(lt(1, x.r), 0, 1) * S + outer(x.k, x.v) }
  end },
  ["reset, and delta"] = { { r = "t", b = "t : unit" }, {},
    function (x, _, S)
      S = where(lt(1, x.r), 0, 1) * S
      return { S = S + outer(x.b * x.k, x.v - dot(x.k, S)) }
    end },
  ["of some keys"] = { { w = "t k" }, {}, function (x, _, S)
    return { S = S + outer(where(lt(0, x.w), x.k, 0), x.v) }
  end },
  ["a mean as gate"] = { { w = "t k" }, {}, function (x, _, S)
    return { S = sigmoid(flin.mean(x.w, "k")) * S + outer(x.k, x.v) }
  end },
  ["a gate that is averaged"] = { { a = "t" }, { m = "" },
    function (x, s, S)
      local m = 0.9 * s.m + 0.1 * x.a
      return { S = sigmoid(m) * S + outer(x.k, x.v), m = m }
    end },
  ["at least a half"] = { { a = "t k : unit" }, {}, function (x, _, S)
    return { S = (1 - 0.5 * x.a) * S + outer(x.k, x.v) }
  end },
  ["turned"] = { { w = "p : angle" }, { phi = "p : angle" },
    function (x, s, S)
      local phi = s.phi + x.w
      local k = flin.rotate(x.k, phi)
      return { S = S + outer(k, x.v), phi = phi }, function (n)
        return dot(flin.rotate(x.q, phi), n.S)
      end
    end },
}

-- Both ways of these without being asked.
local TRAINED <const> = { "averaged keys", "averaged values", "reset",
                          "of some keys", "a mean as gate", "at least a half" }

local function variant(gate, step)
  local input = { q = "t k", k = "t k : unit_norm", v = "t v", g = gate[2] }
  local state = { S = "k v" }
  for name, axes in pairs(step[1]) do input[name] = axes end
  for name, axes in pairs(step[2]) do state[name] = axes end
  return flin.variant {
    name = "covered", input = input, state = state,
    step = function (x, s)
      local left, read = step[3](x, s, gate[3](gate[2] and x.g) * s.S)
      return left, read and read(left) or dot(x.q, left.S)
    end,
  }
end

local function check(gate, name, backward)
  local plan = variant(gate, STEPS[name]):plan {
    K = 128, V = 128, machine = "h200", backward = backward }
  for _, kernel in ipairs(plan.kernels) do
    suite.expect(not kernel.why, "%s, gate %s, %s: %s: %s", name, gate[1],
                 backward and "both ways" or "forward", kernel.name,
                 kernel.why)
  end
  suite.expect(not plan.note, "%s, gate %s: %s", name, gate[1], plan.note)
end

local all <const>, only <const> = ...
local trained, names = {}, {}
for _, name in ipairs(TRAINED) do trained[name] = true end
for name in pairs(STEPS) do names[#names + 1] = name end
table.sort(names)
for _, name in ipairs(only and { only } or names) do
  for _, gate in ipairs(GATES) do
    check(gate, name, false)
    if all == "all" or (trained[name] and gate[1] == "token") then
      check(gate, name, true)
    end
  end
end
suite.finish()
