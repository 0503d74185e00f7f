-- On a GPU: masks that look back over bands, in rings of tokens: forward,
-- backward and token by token.
--   flin tests/cuda/bands.lua
local flin = require "flin"
local exp = flin.exp
local suite = require "suite"
local expect <const>, on_gpu <const> = suite.expect, suite.on_gpu
local relative <const> = suite.relative

suite.gpu()

local T <const> = 70

local function window(i, j, p)
  if i < j then return 0 end
  if i - j < 20 then return p.w[i] * p.u[j] end
  return exp(p.g_cumsum[i] - p.g_cumsum[j])
end

-- float32: what it rounds; bfloat16: what is stored in it.
for dtype, limit in pairs { float32 = 1e-5, bfloat16 = 8e-3 } do
  local v = flin.variant { name = "window", mask = window }
  local x = v:random { T = T, B = 1, H = 1, K = 16, V = 16, dtype = dtype }
  local want = {}
  x.dy = flin.randn({ 1, T, 1, 16 }, { seed = 3 }):to(dtype)
  for name, t in pairs(x) do want[name] = t:to "float64" end
  local grad = v:backward(on_gpu(x))
  for name, g in pairs(v:reference_backward(want)) do
    if name ~= "initial_state" then
      local e = relative(grad[name], g)
      expect(e <= limit, "%s: d_%s is off by %.1e", dtype, name, e)
    end
  end
  x.dy, want.dy = nil, nil
  local first, last = {}, {}
  for name, t in pairs(x) do
    first[name] = t:narrow(2, 1, T - 1)
    last[name] = t:narrow(2, T, 1)
  end
  local y = v:reference(want)
  local got, state = v:forward(on_gpu(first))
  local e = relative(got, y:narrow(2, 1, T - 1))
  expect(e <= limit, "%s: y is off by %.1e", dtype, e)
  local one = on_gpu(last)
  one.state = state
  e = relative(v:step(one), y:narrow(2, T, 1))
  expect(e <= limit, "%s: the last token is off by %.1e", dtype, e)
end

suite.finish()
