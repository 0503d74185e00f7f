-- v:bench on a GPU says what each kernel took, also where a kernel of the plan
-- is several there, and the roofline shows them.
local flin = require "flin"
local passed, failed = 0, 0

local function check(name, ok, what)
  if ok then
    passed = passed + 1
  else
    failed = failed + 1
    print("FAIL " .. name .. (what and ": " .. tostring(what) or ""))
  end
end

local b = flin.stdlib.gated_deltanet:bench { T = 128, H = 1, K = 64, V = 64,
  dtype = "bfloat16", backend = "cuda", seconds = 0 }
local calls, parts = {}, 0
for _, k in ipairs(b.kernels) do
  calls[k.call] = (calls[k.call] or 0) + 1
  parts = math.max(parts, #k.parts)
  local sum = 0
  for _, part in ipairs(k.parts) do
    check("a launch takes time", part.seconds > 0, part.name)
    check("a launch was predicted", part.predicted > 0, part.name)
    sum = sum + part.seconds
  end
  check("a kernel is its launches", math.abs(sum - k.seconds) <= 1e-9 * sum)
  check("it computes and moves", k.flops > 0 and k.moved > 0 and not k.counted)
end
check("forward moves its arguments and results", b.kernels[1].moved == b.bytes,
      b.kernels[1].moved)
check("decoding moves the state twice", b.kernels[#b.kernels].moved
      > 2 * 4 * 64 * 64)
check("kernels of each call", calls["forward, chunks"] == 1
      and calls["forward + backward"] == 2 and calls["decode, one token"] == 1)
local roof = flin.picture.roofline(b)
check("a roofline", roof:find "^<svg " and roof:find("on " .. b.gpu, 1, true)
      and roof:find "2 backward  %d+ %%")
if flin.cuda().arch:find "^sm_90" then
  check("one of them is several", parts > 1, parts)
  check("the table names them", tostring(b):find "\n      k%d_%a+ ")
  check("both roofs", b.peak > 0 and roof:find "products, ")
else
  check("memory's roof alone", not b.peak and not roof:find "products, ")
end
print(("%d passed, %d failed"):format(passed, failed))
os.exit(failed == 0 and 0 or 1)
