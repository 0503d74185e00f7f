-- What a token adds of the one before is one write with that token's own, and a
-- walk carries its state with what is yet to be written: forward, by the
-- float64 step. Sequences of no token, one and many; from states and from none;
-- under gates of any strength, with resets.
--   flin tests/cuda/opened.lua [NAME]
local flin = require "flin"
local suite = require "suite"
local exp, dot, outer, prev = flin.exp, flin.dot, flin.outer, flin.prev

suite.gpu()

local LIMIT <const> = { bfloat16 = 8e-3, float32 = 1e-5 }
local inf <const> = math.huge
local KINDS <const> = {
  { "as drawn", function (_, e) return e end },
  { "many resets", function (n, e) return n % 3 ~= 1 and -1e9 or e end },
  { "few", function (n, e) return n % 19 == 5 and -inf or e end },
  { "a wall", function (n, e) return n % 64 < 40 and -80 or e end },
  { "none", function () return 0 end },
}

local INPUT <const> = { q = "t k", k = "t k", v = "t v", g = "t : log_decay",
                        b = "t : unit" }
local function variant(name, step, more)
  local input = {}
  for key, axes in pairs(INPUT) do input[key] = axes end
  for key, axes in pairs(more or {}) do input[key] = axes end
  return flin.variant { name = name, input = input, state = { S = "k v" },
                        step = step }
end

local function band(width)
  return flin.variant {
    name = "band_of_" .. width, mask = function (i, j, p)
      if i < j then return 0 end
      if i - j < width then return p.b[j] end
      return exp(p.g_cumsum[i] - p.g_cumsum[j])
    end,
  }
end

local RULES <const> = {
  variant("weighed", function (x, s)
    local S = exp(x.g) * s.S + exp(x.g) * outer((1 - x.b) * prev(x.k),
                                                prev(x.v))
            + outer(x.b * x.k, x.v)
    return { S = S }, dot(x.q, S)
  end),
  -- by numbers of a head, exponentials, what is not one at zero
  variant("of_heads", function (x, s)
    local c = exp(x.b * x.w) / (x.b + 2)
    local S = exp(x.g) * s.S + exp(x.g) * outer(c * prev(x.k), prev(x.v))
            + outer(x.w * x.k, x.v)
    return { S = S }, dot(x.q, S)
  end, { w = "" }),
  -- the state as a token finds it, too
  variant("found", function (x, s)
    local S = exp(x.g) * s.S + exp(x.g) * outer(x.b * prev(x.k), prev(x.v))
            + outer(x.k, x.v)
    return { S = S }, dot(x.q, S) + dot(x.k, s.S)
  end),
  -- once without a decay
  variant("undecayed", function (x, s)
    local S = s.S * 0.9 + 0.9 * outer(x.b * prev(x.k), prev(x.v))
            + outer(x.k, x.v)
    return { S = S }, exp(x.g) * dot(x.q, S)
  end),
  -- a number of the token before is no weight of this one's
  variant("prev_number", function (x, s)
    local S = exp(x.g) * s.S + exp(x.g) * outer(prev(x.b) * prev(x.k),
                                                prev(x.v)) + outer(x.k, x.v)
    return { S = S }, dot(x.q, S)
  end),
  -- keys are rotated by what has been summed up
  flin.stdlib.mamba3,
  band(2), band(3), band(4),
}

local CALLS <const> = {
  { B = 1, T = 131, H = 2, cu = { 0, 0, 1, 2, 2, 66, 130, 131 } },
  { B = 2, T = 129, H = 1 },
  { B = 1, T = 70, H = 2, cu = { 0, 64, 65, 70, 70 } },
  { B = 1, T = 1, H = 2 },
}

local SIZES <const> = { { 64, 64 }, { 128, 128 }, { 96, 192 }, { 34, 21 } }

local function check(title, v, x, limit)
  local y, state = v:reference(x)
  local there = suite.on_gpu(x)
  there.cu_seqlens = x.cu_seqlens
  if x.initial_state then
    there.initial_state = suite.on_gpu(x.initial_state)
  end
  local got, left = v:forward(there)
  state.y, left.y = y, got
  for what, is in pairs(state) do
    local off = suite.relative(left[what], is)
    suite.expect(off <= limit, "%s: %s is off by %.1e", title, what, off)
  end
end

local only <const> = ...
for i, v in ipairs(RULES) do
  for k, kind in ipairs(KINDS) do
    if only and v.name ~= only then goto next end
    local at = CALLS[(i + k) % #CALLS + 1]
    local dtype = (i + k) % 3 == 0 and "float32" or "bfloat16"
    local size = SIZES[(i + 2 * k) % #SIZES + 1]
    local x = v:random { B = at.B, T = at.T, H = at.H, K = size[1],
                         V = size[2], seed = k, dtype = dtype }
    local n = 0
    if x.g then
      x.g = x.g:map(function (e) n = n + 1 return kind[2](n, e) end)
    end
    x.cu_seqlens = at.cu
    if k % 2 == 0 then                  -- as another call leaves them
      x.initial_state = {}
      for state, left in pairs(select(2, v:reference(x))) do
        x.initial_state[state] = left:to "float32"
      end
    end
    check(("%s, %s, %s, %d x %d, %d tokens%s"):format(v.name, kind[1], dtype,
          size[1], size[2], at.T, at.cu and " packed" or ""), v, x,
          LIMIT[dtype])
    ::next::
  end
end
suite.finish()
