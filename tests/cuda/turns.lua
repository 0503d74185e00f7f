-- On a GPU: what many tokens add up, and what sin and cos see of it, declared
-- as an angle or not; and steps of unusual structure.
--   flin tests/cuda/turns.lua
local flin = require "flin"
local dot, outer, cos = flin.dot, flin.outer, flin.cos
local suite = require "suite"
local expect <const> = suite.expect

suite.gpu()

local TURN <const> = 2 * math.pi

local function turned_off(a, b)
  return (a:to "cpu":to "float64" - b:to "float64"):map(function (x)
    return x - TURN * math.floor(x / TURN + 0.5)
  end):maxabs()
end

-- On the GPU, its tensors those of the CPU.
local function on_gpu(inputs)
  local out = { backend = "cuda" }
  for name, x in pairs(inputs) do out[name] = x end
  return out
end

local function variant(name, phi, more)
  return flin.variant {
    name = name,
    input = { q = "t k", k = "t k : unit_norm", v = "t v", w = "t : unit",
              u = "t : positive" },
    state = { S = "k v", phi = phi },
    step = function (x, s)
      local now = s.phi + x.u - x.w + 0.5
      local S = 0.9 * s.S + outer(x.k * cos(now) + x.w * cos(s.phi), x.v)
      return { S = S, phi = now }, dot(x.q, S) + (more and 1e-3 * now or 0)
    end,
  }
end

local cases = {
  variant("a sum", "", false),
  variant("a sum that is read", "", true),
  variant("an angle", ": angle", false),
}
for _, v in ipairs(cases) do
  for _, T in ipairs { 3, 70, 20000 } do
    local at = { B = 1, T = T, H = 2, K = 16, V = 16 }
    local inputs = v:random(at)
    inputs.initial_state = { S = flin.randn { 1, 2, 16, 16 },
                             phi = flin.full({ 1, 2 }, 2.5) }
    local want, left = v:reference(inputs)
    local y, ends = v:forward(on_gpu(inputs))
    local off = suite.relative(y, want)
    expect(off <= 2e-5, "%s, %d tokens: y is off by %.1e", v.name, T, off)
    if v.states[2].angle then
      off = turned_off(ends.phi, left.phi)
      expect(off <= 1e-4, "%s, %d tokens: phi is off by %.1e", v.name, T, off)
    else
      off = suite.relative(ends.phi, left.phi)
      expect(off <= 5e-7, "%s, %d tokens: phi is off by %.1e", v.name, T, off)
    end
    if T <= 70 then
      inputs.dy, inputs.dstate = want, left
      local got = v:backward(on_gpu(inputs))
      local grad = v:reference_backward(inputs)
      for _, input in ipairs(v.inputs) do
        off = suite.relative(got[input.name], grad[input.name])
        expect(off <= 1e-4, "%s, %d tokens: d_%s is off by %.1e", v.name, T,
               input.name, off)
      end
      for name in pairs(left) do
        off = suite.relative(got.initial_state[name], grad.initial_state[name])
        expect(off <= 1e-4, "%s, %d tokens: d_%s is off by %.1e", v.name, T,
               name, off)
      end
    end
  end
end

-- Sums of many tokens are as good as a float32 that is rounded once, however
-- long they are: what each token adds, rounded alike, would be off by 2e-5.
do
  local T <const> = 60000
  local v = flin.variant {
    name = "counters",
    input = { q = "t k", k = "t k : unit_norm", v = "t v", w = "t" },
    state = { S = "k v", phi = "", n = "" },
    step = function (x, s)
      local phi, n = s.phi + x.w, s.n + 1
      local S = 0.9 * s.S + outer(x.k, x.v)
      return { S = S, phi = phi, n = n }, dot(x.q, S) + 1e-3 * phi + s.n
    end,
  }
  local inputs = v:random { B = 1, T = T, H = 1, K = 4, V = 4 }
  inputs.w = flin.full({ 1, T, 1 }, 0.1)
  local want, left = v:reference(inputs)
  local y, ends = v:forward(on_gpu(inputs))
  expect(suite.relative(ends.phi, left.phi) <= 6e-8, "60,000 tokens: phi is "
         .. "off by %.1e", suite.relative(ends.phi, left.phi))
  expect(suite.relative(ends.n, left.n) == 0, "60,000 tokens: n is off")
  expect(suite.relative(y, want) <= 2e-7, "60,000 tokens: y is off by %.1e",
         suite.relative(y, want))
end

-- Only summed, only averaged, a key that is the same for all tokens.
local steps = {
  ["a sum and a mean"] = { { q = "t k", k = "t k", v = "t v", a = "t k" },
                           function (x, s)
    local S = 0.9 * s.S + outer(x.k, x.v)
    return { S = S }, dot(x.q, S) + flin.sum(x.a) + flin.mean(x.v)
  end },
  ["the same key"] = { { q = "t k", v = "t v", c = "k : unit_norm",
                         g = "t k : log_decay", b = "t" }, function (x, s)
    local S = flin.exp(x.g) * s.S
    S = S + outer(0.5 * flin.sigmoid(x.b) * x.c, x.v - dot(x.c, S))
    return { S = S }, dot(x.q, S)
  end },
}
for name, step in pairs(steps) do
  local v = flin.variant { name = name, input = step[1],
                           state = { S = "k v" }, step = step[2] }
  for dtype, limit in pairs { float32 = 1e-4, bfloat16 = 1e-2 } do
    local found = v:check { B = 1, T = 70, H = 2, K = 16, V = 16,
                            dtype = dtype, backend = "cuda" }
    for what, off in pairs(found) do
      expect(type(off) ~= "number" or off <= limit, "%s, %s: %s is off by %s",
             name, dtype, what, off)
    end
  end
end

-- Chunks that fill no block of what solves invert.
for _, chunk in ipairs { 1, 3, 17 } do
  local found = flin.stdlib.gated_deltanet:check {
    B = 1, T = 40, H = 1, K = 16, V = 20, backend = "cuda", chunk = chunk
  }
  expect(found.worst <= 1e-4, "chunks of %d: off by %.1e", chunk, found.worst)
end

suite.finish()
