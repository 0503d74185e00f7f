-- On a GPU: masks of both directions, as two scans whose results are added up:
-- forward and gradients against float64, the same bits each time, packed
-- sequences, heads that are shared, tensors of the host.
--   flin tests/cuda/ways.lua [T]
local flin = require "flin"
local exp = flin.exp
local suite = require "suite"
local expect <const>, on_gpu <const> = suite.expect, suite.on_gpu
local relative <const> = suite.relative
local T <const> = tonumber((...) or 130)

suite.gpu { poison = true }

local masks <const> = {
  plain = function () return 1 end,
  gated = function (i, j, p)
    if i < j then return p.b[j] * exp(p.h_cumsum[j] - p.h_cumsum[i]) end
    return p.a[i] * exp(p.g_cumsum[i] - p.g_cumsum[j])
  end,
  near = function (i, j, p)
    if flin.abs(i - j) > 2 then return 0 end
    return p.w[j] / (flin.abs(i - j) + 1)
  end,
  behind = function (i, j, p)
    if i >= j then return 0 end
    return exp(p.s * (j - i))
  end,
}
local declared <const> = { behind = { s = ": log_decay" } }

-- float32: what it rounds. bfloat16: what is stored in it, the parts of the
-- sum included.
local limits <const> = { float32 = 1e-5, bfloat16 = 8e-3 }

local function check(name, dtype, D, H, cu)
  local v = flin.variant { name = name, causal = false, mask = masks[name],
                           input = declared[name] }
  local B = cu and 1 or 2
  local x = v:random { T = T, B = B, H = H, HV = 2, K = D, V = D,
                       dtype = dtype }
  local want, what = {}, ("%s, %s, %d wide"):format(name, dtype, D)
  x.dy = flin.randn({ B, T, 2, D }, { seed = 3 }):to(dtype)
  for n, t in pairs(x) do want[n] = t:to "float64" end
  local there = on_gpu(x)
  want.cu_seqlens, there.cu_seqlens = cu, cu
  local grad, again = v:backward(there), v:backward(there)
  for n, g in pairs(v:reference_backward(want)) do
    if n ~= "initial_state" then
      local e = relative(grad[n], g)
      expect(e <= limits[dtype], "%s: d_%s is off by %.1e", what, n, e)
      expect((grad[n]:to "cpu" - again[n]:to "cpu"):maxabs() == 0,
             "%s: d_%s changes", what, n)
    end
  end
  there.dy, want.dy, x.dy = nil, nil, nil
  local y = v:reference(want)
  local e = relative(v:forward(there), y)
  expect(e <= limits[dtype], "%s: y is off by %.1e", what, e)
  x.cu_seqlens, x.backend = cu, "cuda"
  e = relative(v:forward(x), y)
  expect(e <= limits[dtype], "%s: of the host's tensors y is off by %.1e",
         what, e)
end

for name in pairs(masks) do
  check(name, "bfloat16", 64, 1)
end
check("gated", "float32", 16, 2, { 0, 1, 1, T // 2, T })
check("gated", "bfloat16", 64, 2, { 0, 1, 1, T // 2, T })
check("behind", "float32", 16, 1)

suite.finish()
