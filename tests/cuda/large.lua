-- Calls as large as models make them, on a GPU beside the CPU, which computes
-- them another way: what a kernel does for long sequences and many heads alone
-- (blocks that share a walk, segments, chunks ahead of it) no small call shows.
-- Gates are slow, so that what is wrong early is seen late.
--   flin tests/cuda/large.lua [B=1 T=4160 H=16 K=128 V=128] [NAME ...]
local flin = require "flin"
local suite = require "suite"
local expect = suite.expect

local sizes, only = { B = 1, T = 4160, H = 16, K = 128, V = 128 }, nil
for _, word in ipairs { ... } do
  local axis, n = word:match "^(%u)=(%d+)$"
  if axis then
    sizes[axis] = tonumber(n)
  else
    only = only or {}
    only[word] = true
  end
end
suite.gpu { poison = true }

-- Gradients through a softmax lose a tenth in bfloat16; what is wrong of large
-- calls alone is off by its own size.
local LIMIT <const>, SLOW <const> = { y = 2e-2, d = 0.2 }, 0.01

local function drawn(v)
  local at = { seed = 4, dtype = "bfloat16" }
  for axis, n in pairs(sizes) do at[axis] = n end
  local x = v:random(at)
  for _, input in ipairs(v.inputs) do
    if input.domain == "log_decay" and flin.is_tensor(x[input.name]) then
      x[input.name] = (x[input.name] * SLOW):to(x[input.name].dtype)
    end
  end
  return x
end

-- The worst of eight parts of the sequence.
local function worst(got, want)
  local T, most, off = want.shape[2], 0, 0
  for i = 0, 7 do
    local from, to = T * i // 8, T * (i + 1) // 8
    off = suite.relative(got:narrow(2, from + 1, to - from),
                         want:narrow(2, from + 1, to - from))
    if off > most or off ~= off then most = off end
  end
  return most
end

local function check(name, v)
  local x = drawn(v)
  local want = v:forward(x)
  local size = want:maxabs()
  if size ~= size or size > 1e6 then
    print(("%s grows beyond what can be compared"):format(name))
    return
  end
  local there = suite.on_gpu(x)
  there.states = false
  local y = v:forward(there)
  local off = worst(y:to "cpu", want)
  expect(off <= LIMIT.y, "%s: y is off by %.1e", name, off)
  x.dy = flin.randn(want.shape):to(want.dtype)
  there.dy = x.dy:to "cuda"
  there.states = nil
  local wanted, d = v:backward(x), v:backward(there)
  for _, input in ipairs(v.inputs) do
    local g = wanted[input.name]
    if flin.is_tensor(g) and #g.shape > 2 and g.shape[2] == sizes.T then
      off = worst(d[input.name]:to "cpu", g)
      expect(off <= LIMIT.d, "%s: d_%s is off by %.1e", name, input.name, off)
    end
  end
end

for _, name in ipairs(flin.stdlib_names) do
  if not only or only[name] then
    local ok, why = pcall(check, name, flin.stdlib[name])
    expect(ok, "%s: %s", name, why)
  end
end
suite.finish()
