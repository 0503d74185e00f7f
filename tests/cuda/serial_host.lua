-- Token by token on a GPU, with tensors of the host: segments of the way back
-- begin in the middle of these. Of heads that share q and k, with constants,
-- packed, and with states at both ends. And of tensors on the GPU, whose
-- gradients that heads share are summed there, each token's once.
--   flin tests/cuda/serial_host.lua
local flin = require "flin"
local dot, outer = flin.dot, flin.outer
local suite = require "suite"
local expect <const>, relative <const> = suite.expect, suite.relative

suite.gpu()

local v = flin.variant {
  name = "bent",
  input = { q = "t k", k = "t k : unit_norm", v = "t v", c = "k", b = "" },
  state = { S = "k v" },
  step = function (x, s)
    local S = 0.9 * flin.tanh(s.S) + outer(x.k * x.c, x.b * x.v)
    return { S = S }, dot(x.q, S)
  end,
}

local function randn(...) return flin.randn({ ... }, { seed = 7 }) end

local function check(name, T, B, N, ends)
  local x = { q = randn(B, T, 1, 4), k = 0.4 * randn(B, T, 1, 4),
              v = randn(B, T, 2, 3), c = randn(2, 4), b = randn(2),
              initial_state = { S = randn(N, 2, 4, 3) }, cu_seqlens = ends }
  local want = v:reference(x)
  x.backend = "cuda"
  local y = v:forward(x)
  expect(relative(y, want) <= 1e-5, "%s: y is off by %.1e", name,
         relative(y, want))
  x.dy, x.dstate = randn(B, T, 2, 3), { S = randn(N, 2, 4, 3) }
  local got = v:backward(x)
  x.backend = nil
  local grad = v:reference_backward(x)
  got.S, grad.S = got.initial_state.S, grad.initial_state.S
  for input, g in pairs(grad) do
    if input ~= "initial_state" then
      local off = relative(got[input], g)
      expect(off <= 1e-4, "%s: d_%s is off by %.1e", name, input, off)
    end
  end
end

for _, T in ipairs { 1, 64, 65, 300 } do
  check(("%d tokens"):format(T), T, 2, 2)
end
check("packed", 230, 1, 3, { 0, 70, 71, 230 })

local x = { q = randn(2, 19, 1, 4), k = 0.4 * randn(2, 19, 1, 4),
            v = randn(2, 19, 2, 3), c = randn(2, 4), b = randn(2) }
x.dy = randn(2, 19, 2, 3)
local got, want = v:backward(suite.on_gpu(x)), v:reference_backward(x)
for _, input in ipairs { "q", "k", "v", "c", "b" } do
  local off = relative(got[input], want[input])
  expect(off <= 1e-4, "on the GPU: d_%s is off by %.1e", input, off)
end

suite.finish()
