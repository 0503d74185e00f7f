-- Gates of float32 of any strength, of tokens, keys and values, alone and mixed
-- with resets, also behind the end of an axis: what comes after one is as exact
-- as if there had been none. Both ways, by the float64 step.
-- Sizes, chunks, packings and heads go round with what is written and gates
-- are of; a number turns them.
--   flin tests/cuda/gates.lua [TURN]
local flin = require "flin"
local suite = require "suite"
local exp, dot, outer, where = flin.exp, flin.dot, flin.outer, flin.where

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

-- What is written; what is read; what gates are made of.
local HOW <const> = {
  { "plain", function (S, x) return S + outer(x.k, x.v) end },
  { "delta", function (S, x)
    return S + outer(0.9 * x.k, x.v - dot(x.k, S)) end },
  { "mean", function (S, x) return S + outer(x.k, x.v) end,
    function (y) return flin.mean(y) end },
  { "compared", function (S, x) return S + outer(x.k, x.v) end, nil,
    function (g) return where(flin.lt(flin.prev(g), g), g, -1e9) end },
}

local function variant(axes, how)
  return flin.variant {
    name = "gated_" .. (axes:gsub("%A+", "")) .. "_" .. how[1],
    input = { q = "t k", k = "t k : unit_norm", v = "t v", g = axes },
    state = { S = "k v" },
    step = function (x, s)
      local S = how[2](exp(how[4] and how[4](x.g) or x.g) * s.S, x)
      local y = dot(x.q, S)
      return { S = S }, how[3] and how[3](y) or y
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

-- Keys and values, tokens of a chunk.
local SIZES <const> = {
  { 32, 32, 64 }, { 16, 64, 32 }, { 64, 16, 16 }, { 33, 5, 64 }, { 48, 24, 32 },
  { 64, 64, 64 }, { 8, 40, 16 }, { 20, 128, 64 }, { 128, 33, 32 },
  { 2, 16, 64 }, { 72, 8, 64 }, { 16, 1, 32 }, { 40, 72, 16 },
}

-- Sequences and heads, by the kind of gates, of a chunk of n tokens.
local CALLS <const> = {
  function (n) return { B = 1, T = n + 22, H = 2 } end,
  function (n) return { B = 1, T = 2 * n + 9, H = 2,
                        cu = { 0, 0, 1, n + 1, n + 1, 2 * n + 9 } } end,
  function (n) return { B = 2, T = 2 * n, H = 3 } end,
  function (n) return { B = 1, T = n + 70, H = 1,
                        cu = { 0, n - 1, n + 2, n + 70, n + 70 } } end,
}

local turn <const> = tonumber((...)) or 0

for i, axes in ipairs { "t", "t k", "t v" } do
  for j, how in ipairs(HOW) do
    local v = variant(axes .. " : log_decay", how)
    local size = SIZES[(4 * i + j - 5 + turn) % #SIZES + 1]
    for k, kind in ipairs(KINDS) do
      local at = CALLS[(k + i + j + turn) % #CALLS + 1](size[3])
      local x = v:random { B = at.B, T = at.T, H = at.H, K = size[1],
                           V = size[2], seed = k + turn }
      local n = 0
      x.g = x.g:map(function (e) n = n + 1 return kind[2](n, e) end)
      x.chunk, x.cu_seqlens = size[3], at.cu
      check(("%s of %s, %s, %d x %d by %d, %s"):format(kind[1], axes, how[1],
            size[1], size[2], size[3], at.cu and "packed" or "whole"), v, x)
    end
  end
end

-- Slots that are written alike tell queries nothing: their gradient and that of
-- keys is 0, a difference of sums as large as d_v. What float32 and bfloat16
-- round it to is some units of those.
for dtype, most in pairs { float32 = 5e-5, bfloat16 = 0.2 } do
  for _, gate in ipairs { -inf, -1e9, -1 } do
    local v = flin.stdlib.gsa
    local x = v:random { B = 1, T = 70, H = 2, K = 64, V = 64, m = 16, seed = 1,
                         dtype = dtype }
    x.g = (flin.zeros(x.g.shape) + gate):to(x.g.dtype)
    x.dy = flin.randn(v:reference(x).shape):to(dtype)
    local grad, want = v:backward(suite.on_gpu(x)), v:reference_backward(x)
    for _, name in ipairs { "q", "k" } do
      local off = grad[name]:to "cpu":maxabs() / want.v:maxabs()
      suite.expect(off <= most, "gsa, %s, gates of %g: d_%s, which is 0, is "
                   .. "%.1e of d_v", dtype, gate, name, off)
    end
    local off = suite.relative(grad.v, want.v)
    suite.expect(off <= (dtype == "float32" and LIMIT.grad or 1e-2),
                 "gsa, %s, gates of %g: d_v is off by %.1e", dtype, gate, off)
  end
end
suite.finish()
