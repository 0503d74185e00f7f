-- Writes of the token before beside its own, as under the trapezoidal rule: how
-- they are read together is no matter of the step. Random steps with such, and
-- with what is nearly such, beside the float64 step: forward and gradients, in
-- several chunks and packed.
--   flin delayed.lua [SEEDS]
local flin = require "flin"
local exp, dot, outer, prev = flin.exp, flin.dot, flin.outer, flin.prev
local rotate = flin.rotate

local count = require "support.count"
local generator = require "support.generator"
local check <const>, expect <const> = count.check, count.expect
local SEEDS <const> = tonumber(arg and arg[1]) or 10
local LIMIT <const> = 1e-5

-- Each takes the token's arguments.
local decays <const> = {
  function () return 1 end,
  function () return 0.9 end,
  function (x) return exp(x.g) end,
  function (x) return exp(x.g) end,
  function (x) return exp(x.gk) end,
}
local weights <const> = {
  function () return 1 end,
  function () return -0.5 end,
  function (x) return 1 - x.l end,
  function (x) return (1 - x.l) * exp(x.g) end,
  function (x) return x.d * exp(x.g) * (1 - x.l) end,
}
-- A key and the one of the token before; mostly the same, a token later.
local keys <const> = {
  function (x) return x.k, prev(x.k) end,
  function (x) return 2 * x.k + x.c, 2 * prev(x.k) + x.c end,
  function (x, s, phi)
    return rotate(x.k, phi, "k"), rotate(prev(x.k), s.phi, "k")
  end,
  function (x, s, phi)                  -- turned as the token's own
    return rotate(x.k, phi, "k"), rotate(prev(x.k), phi, "k")
  end,
  function (x) return x.u * x.k, x.u * prev(x.k) end,
  function (x) return x.u * x.k, prev(x.u) * prev(x.k) end,
}
local values <const> = {
  function (x) return x.v, prev(x.v) end,
  function (x) return x.v * x.d, prev(x.v) * prev(x.d) end,
  function (x) return x.v, x.v end,
  function (x) return x.v + x.w, prev(x.v) + prev(x.w) end,
}
local others <const> = {
  function () return 0 end,
  function () return 0 end,
  function (x) return outer(x.u, x.w) end,
  function (x, s) return outer(x.k, 0.1 * (x.w - dot(x.k, s.S))) end,
  function (x) return outer(prev(x.u), x.w) + outer(x.u, prev(x.w)) end,
}
local reads <const> = {
  function (x, s, S) return dot(x.q, S) end,
  function (x, s, S) return dot(x.q, S) end,
  function (x, s) return dot(x.q, s.S) end,
  function (x, s, S, alpha) return dot(alpha * x.q, s.S) + dot(x.u, S) end,
  function (x, s, S) return x.w * dot(x.u, dot(S, x.v)) end,
}

-- Of each rank, too.
local ranked <const> = {
  function (x) return x.kr, prev(x.kr), x.vr, prev(x.vr) end,
  function (x) return x.kr, prev(x.kr), x.wr * x.v, x.wr * prev(x.v) end,
  function (x, s, phi)
    return rotate(x.kr, phi, "k"), rotate(prev(x.kr), s.phi, "k"), x.vr,
      prev(x.vr)
  end,
}

local input <const> = {
  q = "t k", k = "t k", u = "t k", v = "t v", w = "t v", c = "k",
  g = "t : log_decay", gk = "t k : log_decay", l = "t : unit",
  d = "t : unit", theta = "t p : angle",
  kr = "t r k", vr = "t r v", wr = "r v",
}

local function variant(draw)
  local function one(list) return list[draw(#list)] end
  local decay, key, value = one(decays), one(keys), one(values)
  local late, now = one(weights), one(weights)
  local other, read, on_key = one(others), one(reads), draw(2) == 1
  local decayed, ranks = draw(3) > 1, draw(4) == 1 and one(ranked)
  return flin.variant {
    name = "delayed", input = input, axes = { r = 3 },
    state = { S = "k v", phi = "p : angle" },
    step = function (x, s)
      local phi = s.phi + x.theta
      local alpha = decay(x)
      local k, k0 = key(x, s, phi)
      local v, v0 = value(x)
      local c, d = late(x), now(x)
      local S = alpha * s.S + other(x, s)
      if decayed then                   -- as it has decayed since
        k0 = alpha * k0
      end
      S = S + (on_key and outer(c * k0, v0) or outer(k0, c * v0))
            + outer(d * k, v)
      if ranks then
        local kr, kr0, vr, vr0 = ranks(x, s, phi)
        S = S + dot(c * alpha * kr0, vr0, "r") + dot(d * kr, vr, "r")
      end
      local all = dot(x.q, x.k) + dot(x.c, x.u) + dot(x.gk, x.k) + x.g
                + x.l + x.d + dot(flin.sum(x.kr, "r"), x.k)
                + dot(x.vr, x.wr)       -- each argument goes into the step
      return { S = S, phi = phi },
        read(x, s, S, alpha) + 0.1 * all * (x.w + x.v)
    end,
  }
end

for seed = 1, SEEDS do
  local ok, v = pcall(variant, generator(seed))
  check("seed " .. seed .. " compiles", ok, v)
  for _, chunk in ipairs(ok and { 4, 64 } or {}) do
    local e = v:check { T = 70, K = 6, P = 3, V = 5, chunk = chunk }
    expect(e.worst <= LIMIT, "seed %d in chunks of %d: %s", seed, chunk,
           tostring(e))
  end
  local e = ok and v:check { T = 40, K = 6, P = 3, V = 5,
                             cu_seqlens = { 0, 7, 7, 8, 40 } }
  expect(not e or e.worst <= LIMIT, "seed %d, packed: %s", seed, tostring(e))
end

-- Scores of a training call's plan, each made once.
local function scores(v)
  local n = 0
  for line in tostring(v:plan { K = 128, V = 128, machine = "h200",
                                backward = true }):gmatch "[^\n]+" do
    if line:find("[i j]", 1, true) and not line:find "recomputed"
      and line:find "^ +dot%(" then
      n = n + 1
    end
  end
  return n
end

local trapezoidal = dofile "stdlib/trapezoidal_gla.lua"
local gla = dofile "stdlib/simple_gla.lua"
expect(scores(trapezoidal) == scores(gla), "%d products of scores, of one "
       .. "write a token %d", scores(trapezoidal), scores(gla))

count.finish()
