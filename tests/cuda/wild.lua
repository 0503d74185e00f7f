-- Random steps by seed, of more kinds than programs.lua has: features, angles,
-- the token before, states beside the matrix, up to three writes, of which any
-- may erase.
local flin = require "flin"
local random, read = require "random", require "read"
local dot, exp, sigmoid = flin.dot, flin.exp, flin.sigmoid

local function draws(seed)
  local s = seed * 7919 + 13
  for _ = 1, 9 do s = (s ~ (s >> 29)) * 0x5851f42d4c957f2d + 12345 end
  return random(s)
end

local GATES <const> = { [0] = ": log_decay", "t : log_decay", "t k : log_decay",
                        "t k : log_decay", "t : log_decay", "t",
                        "t k : unit", "t : log_decay", "t : log_decay",
                        "t k : log_decay", "t", "t k : log_decay" }

-- From 8 on gates that constants scale.
local function decay_of(kind, x)
  local g = x.g
  if kind == 5 then return sigmoid(g) end
  if kind == 6 then return 1 - 0.5 * g end
  if kind == 8 or kind == 9 then return exp(x.c * g) end
  if kind == 10 then return exp(-exp(x.rate) * flin.softplus(g)) end
  return kind == 11 and exp(g - flin.softplus(x.rate)) or exp(g)
end

local function feature(r, x, a, scales)
  local how = r.pick(7)
  if how == 1 then return flin.silu(a) end
  if how == 2 then return sigmoid(a) end
  if how == 3 then return a * x.w end
  if how == 4 then return a * x.beta end
  return how == 5 and scales and a * x.A or a
end

return function (seed)
  local first = draws(seed)
  local kind = first.pick(8)
  if seed % 3 == 2 then kind = 8 + seed // 3 % 4 end
  local shifts, turns = first.chance(0.2), first.chance(0.2)
  local scales = first.chance(0.2)
  first.uniform()
  local beside = first.chance(0.4) and (first.chance(0.5) and "" or "k")

  local function step(x, s)
    local r = draws(seed + 100000)
    local left = {}
    local q, k, k2 = x.q, x.k, x.k2
    if turns then
      left.phi = s.phi + x.theta
      q, k = flin.rotate(q, left.phi), flin.rotate(k, left.phi)
      if r.chance(0.5) then k2 = flin.rotate(k2, left.phi) end
    end
    q = feature(r, x, q, scales)
    local key = { feature(r, x, k, scales), k2 }
    -- what turns is made of a state
    key[3] = shifts and not turns and flin.prev(key[1]) or k
    local mean
    if beside == "" then
      left.z = 0.8 * s.z + 0.2 * x.u
      mean = left.z
    elseif beside then
      left.z = 0.9 * s.z + 0.1 * x.w
    end
    local decayed = decay_of(kind, x) * s.S
    local S = decayed
    for i = 1, 1 + r.pick(3) do
      local to, what = key[i], i == 2 and x.v2 or x.v
      if r.chance(0.3) then what = what * x.b2 end
      if r.chance(0.3) then to = to * x.beta end
      if mean and r.chance(0.3) then to = to * sigmoid(mean) end
      if i > 1 and r.chance(0.3) then what = -what end
      if r.chance(0.35) then
        local from = r.chance(0.5) and decayed or r.chance(0.5) and S or s.S
        local p = r.chance(0.7) and (i == 2 and k2 or k) or k * x.w
        what = what - x.beta * dot(p, from)
      end
      if r.chance(0.1) then what = what * sigmoid(x.o) end
      S = S + flin.outer(to, what)
    end
    left.S = S
    local y = dot(q, r.chance(0.75) and S or s.S)
    if r.chance(0.2) then
      y = y + dot(k2, S) * (mean and flin.tanh(mean) or 0.5)
    end
    if r.chance(0.2) then y = y + x.v * x.b2 end
    if r.chance(0.2) then y = y * sigmoid(x.o) end
    if r.chance(0.1) then
      y = y * flin.rsqrt(flin.sum(y * y, "v") + 1)
    end
    return left, y
  end

  return read {
    name = "wild_" .. seed, step = step,
    input = { q = "t k", k = "t k : unit_norm", k2 = "t k : unit_norm",
              v = "t v", v2 = "t v", o = "t v", w = "t k : unit", u = "t",
              beta = "t : unit", b2 = "t : unit", g = GATES[kind],
              c = ": unit", rate = "",
              A = scales and "k" or nil,
              theta = turns and "p : angle" or nil },
    state = { S = "k v", z = beside or nil,
              phi = turns and (beside and "p" or "p : angle") or nil },
  }
end
