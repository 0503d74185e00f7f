-- Random steps by seed: gates, erasing and writing terms, a lower state, reads
-- of several kinds. Most have a chunk form.
local flin = require "flin"
local random, read = require "random", require "read"
local dot, outer, sigmoid = flin.dot, flin.outer, flin.sigmoid

local GATES <const> = { [2] = ": log_decay", [3] = "t : log_decay", [4] = "t" }

return function (seed)
  local first = random(seed * 77 + 5)
  local K, V = 5 + first.pick(20), 5 + first.pick(20)
  local across = first.chance(0.2)      -- reads and decays along v, not k
  local kind = first.pick(7)
  local along = across and "v" or "k"

  local function step(x, s)
    local r = random((seed + 1000) * 77 + 5)
    local key, value = { x.k, x.k2 }, { x.v, x.v2 }
    local z = 0.8 * s.z + 0.2 * x.u
    local mean = r.chance(0.5) and z or s.z
    local decay = kind == 0 and 1 or kind == 1 and 0.9
      or kind == 4 and sigmoid(x.g) or kind == 6 and sigmoid(mean + 1)
      or flin.exp(x.g)

    local function keyed(i)
      local how = r.pick(4)
      if how == 1 then return key[i] * x.beta end
      if how == 2 then return key[i] * sigmoid(mean) end
      return how == 3 and -key[i] or key[i]
    end
    local S = decay * s.S
    local decayed = S
    for i = 1, 1 + r.pick(2) do
      local to, what = keyed(i), value[i]
      if across then to, what = value[i] * 0.5, to end
      if r.chance(0.5) then
        local from = r.chance(0.5) and decayed or r.chance(0.5) and S or s.S
        local p = across and value[i] * 0.3 or key[i]
        what = what - x.beta * dot(p, from, along)
      end
      S = S + outer(to, what)
    end

    local y = dot(x.q, r.chance(0.7) and S or s.S, "k")
    if r.chance(0.3) then y = y * sigmoid(y) end
    if r.chance(0.3) then y = y + dot(x.k2, S, "k") * flin.tanh(mean) end
    if r.chance(0.3) then y = y + dot(x.v2, S, "v") end
    if r.chance(0.2) then
      y = y * flin.rsqrt(flin.sum(y * y, "v") + 1)
    end
    return { S = S, z = z }, y
  end

  local gate = kind == 5 and "t " .. along .. " : log_decay" or GATES[kind]
  local input = { q = "t k", k = "t k : unit_norm", k2 = "t k : unit_norm",
                  v = "t v : unit_norm", v2 = "t v : unit_norm",
                  beta = "t : unit", u = "t", g = gate }
  return read { name = "random_" .. seed, input = input,
                state = { S = "k v", z = "" }, step = step }, K, V
end
