-- What the scripts here share: counting, tensors on the GPU, limits.
local flin = require "flin"

local suite = {}
local passed, failed = 0, 0

-- expect(ok, FORMAT, ...): what is wrong if it is not.
function suite.expect(ok, ...)
  if ok then
    passed = passed + 1
  else
    failed = failed + 1
    print("FAIL " .. string.format(...))
    io.stdout:flush()
  end
end

function suite.finish()
  print(("%d passed, %d failed"):format(passed, failed))
  os.exit(failed == 0 and 0 or 1)
end

-- flin.cuda's GPU, or the end.
function suite.gpu(options)
  local gpu, why = flin.cuda(options)
  if gpu then return gpu end
  print("skip: " .. why)
  os.exit(0)
end

-- The table with its tensors on the GPU.
function suite.on_gpu(inputs)
  local out = {}
  for name, x in pairs(inputs) do
    out[name] = flin.is_tensor(x) and x:to "cuda" or x
  end
  return out
end

-- Root of the squares of the error over that of what is right, b.
function suite.relative(a, b)
  local off = a:to "cpu":to "float64" - b:to "float64"
  local norm = (b:to "float64" * b:to "float64"):sum()
  return ((off * off):sum() / math.max(norm, 1e-30))^0.5
end

-- What erases is solved for in each chunk: its rounding grows with the keys'
-- likeness.
suite.ERASES = {
  deltanet = true, gated_deltanet = true, kda = true, gdn2 = true,
  comba = true, deltaproduct = true, rwkv7 = true, precond_gdn = true,
  precond_kda = true, deltanet_rope = true, mimo_deltanet = true,
}

return suite
