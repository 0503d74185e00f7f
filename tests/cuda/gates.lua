-- Gates of float32 of any strength, of tokens and of keys, alone and mixed with
-- resets: what comes after one is as exact as if there had been none. Both
-- ways, by the float64 step.
--   flin tests/cuda/gates.lua
local flin = require "flin"
local suite = require "suite"
local exp, dot, outer = flin.exp, flin.dot, flin.outer

suite.gpu()

-- Of what float32 and three products of TF32 round to, some times; a gate's sum
-- that lost its bits was off by 2e-5 to 9e-5.
local LIMIT <const> = { y = 2e-6, grad = 1e-5 }

local inf <const> = math.huge
local KINDS <const> = {
  { "as drawn", function (_, e) return e end },
  { "many resets", function (n, e) return n % 3 ~= 1 and -1e9 or e end },
  { "few", function (n, e) return n % 19 == 5 and -inf or e end },
  { "a wall", function (n, e) return n % 64 < 40 and -80 or e end },
}

local function variant(axes, delta)
  return flin.variant {
    name = "gated",
    input = { q = "t k", k = "t k : unit_norm", v = "t v", g = axes },
    state = { S = "k v" },
    step = function (x, s)
      local S = exp(x.g) * s.S
      S = S + outer(x.k, delta and x.v - dot(x.k, S) or x.v)
      return { S = S }, dot(x.q, S)
    end,
  }
end

local function check(title, v, x)
  local y, state = v:reference(x)
  local dy = flin.randn(y.shape, { seed = 4 })
  local there = suite.on_gpu(x)
  local y1, state1 = v:forward(there)
  local off = suite.relative(y1, y)
  suite.expect(off <= LIMIT.y, "%s: y is off by %.1e", title, off)
  off = suite.relative(state1.S, state.S)
  suite.expect(off <= LIMIT.y, "%s: S is off by %.1e", title, off)
  x.dy, there.dy = dy, dy:to "cuda"
  local grad, want = v:backward(there), v:reference_backward(x)
  for name, d in pairs(want) do
    if flin.is_tensor(d) then
      off = suite.relative(grad[name], d)
      suite.expect(off <= LIMIT.grad, "%s: d_%s is off by %.1e", title, name,
                   off)
    end
  end
end

for _, axes in ipairs { "t : log_decay", "t k : log_decay" } do
  for _, delta in ipairs { false, true } do
    local v = variant(axes, delta)
    for i, kind in ipairs(KINDS) do
      local x = v:random { B = 1, T = 70 + 16 * i, H = 2, K = 32, V = 32,
                           seed = i }
      local n = 0
      x.g = x.g:map(function (e) n = n + 1 return kind[2](n, e) end)
      x.chunk = 64
      check(("%s of %s%s"):format(kind[1], axes, delta and ", delta" or ""), v,
            x)
    end
  end
end
suite.finish()
