-- The kernels of one variant, each run once or twice, where chunks, tiles and
-- sequences begin and end: for compute-sanitizer, under which all is slow.
-- Memory is taken as it comes, and no more than is asked for, so that a tool
-- sees what is read too early, or beyond the end.
--   flin tests/cuda/sanitized.lua                     the cases, a line each
--   flin tests/cuda/sanitized.lua NAME SIZE [short]   one; short: less of it
local flin = require "flin"
local suite = require "suite"

-- Tensors that tiles do not divide, by kernels without roles and by
-- Hopper's; and the widest, whose blocks hold the most.
local SIZES <const> = {
  odd = { K = 20, V = 33, dtype = "float32" },
  even = { K = 40, V = 24, dtype = "bfloat16" },
  wide = { K = 128, V = 128, dtype = "bfloat16" },
}

-- Its step has no chunk form: one token after another, both ways.
local function serial()
  return flin.variant {
    name = "serial", input = { q = "t k", k = "t k", v = "t v" },
    state = { S = "k v" },
    step = function (x, s)
      local S = flin.tanh(s.S) + flin.outer(x.k, x.v)
      return { S = S }, flin.dot(x.q, S)
    end,
  }
end

local name, size, short = ...
if not name then
  for _, at in ipairs { "wide", "even", "odd" } do  -- the longest first
    for of in pairs(flin.stdlib) do print(of, at) end
    if at ~= "wide" then print("serial", at) end
  end
  os.exit(0)
end

local v = name == "serial" and serial() or flin.stdlib[name]
local gpu, on_gpu = suite.gpu { exact = true }, suite.on_gpu

local function expect(ok, what, ...)
  suite.expect(ok, "%s %s: " .. what, name, size, ...)
end

-- ---- calls ----

local function random(B, T, heads)
  local at = SIZES[size]
  return v:random { B = B, T = T, H = 1, HV = heads, K = at.K, V = at.V,
                    dtype = at.dtype, seed = T }
end

local function finite(what, x)
  local sum = (x:to "cpu" * 0):sum()
  expect(sum == 0, "%s is not finite", what)
end

-- Nearly what the CPU has: that tensors were what they should be.
local function near(what, x, want)
  local off = suite.relative(x, want)
  expect(off <= 3e-2, "%s is off by %.1e", what, off)
end

-- Leaves memory behind, written, that y will get: initcheck does not see what
-- the copy engine stores there. (That y is written, laws.lua shows.)
local function make_room(y)
  flin.zeros(y.shape):to(y.dtype):to "cuda"
  collectgarbage()
  collectgarbage()
end

local function forward(inputs)
  local want, there = v:forward(inputs), on_gpu(inputs)
  make_room(want)
  local y, state = v:forward(there)
  near("y", y, want)
  for key, x in pairs(state) do finite(key, x) end
end

-- What forward keeps, and the way back from there.
local function backward(inputs)
  local want, there = v:forward(inputs), on_gpu(inputs)
  there.save = true
  make_room(want)
  local y, _, saved = v:forward(there)
  near("y beside what is saved", y, want)
  local dy = flin.randn(y.shape, { seed = 1 }):to(y.dtype):to "cuda"
  local grad = v:backward { saved = saved, dy = dy }
  for key in pairs(inputs) do
    if grad[key] then finite("d_" .. key, grad[key]) end
  end
end

local function step(inputs)
  local y, state = v:step(on_gpu(inputs))
  near("a step's y", y, (v:step(inputs)))
  for key, x in pairs(state) do finite(key, x) end
end

-- ---- where something begins or ends ----

-- More chunks than a kernel has stages, of which one is used again; and a row.
local ROUND <const> = 4 * 64 + 1

-- Of every tensor an even number of entries: Hopper's kernels copy gates in
-- words, and of an odd number of bfloat16 the last word is half theirs.

local function packed(ends)
  local inputs = random(1, ends[#ends], 2)
  inputs.cu_seqlens = ends
  return inputs
end

-- More sequences than two for each multiprocessor: blocks that hold two parts
-- of the values; and one for which several blocks share the sequence.
local function wide()
  local ends = { 0, ROUND }
  for _ = 1, gpu.processors // 2 do ends[#ends + 1] = ends[#ends] + 1 end
  forward(packed(ends))
  forward(random(1, ROUND, 2))
  if short then return end
  forward(random(1, 4096, 1))
  backward(random(1, 65, 2))
end

if size == "wide" then
  wide()
elseif short then
  backward(random(1, 65, 2))
  forward(random(1, ROUND, 2))
  step(random(2, 1, 2))
else
  local all = packed { 0, 0, 1, 64, 128, 193 }
  backward(all)
  forward(all)
  backward(random(2, 130, 2))
  forward(random(2, 130, 2))
  step(random(2, 1, 2))
end
suite.finish()
