-- A call back whose tensors other kernels take than the call forward's, of
-- which its dy lies so that schedules cannot read it: what was saved is not
-- what these kernels keep, and all is computed again.
--   flin tests/cuda/kept.lua NAME ...
local flin = require "flin"
local suite = require "suite"

suite.gpu()
local segments <const> = tonumber(os.getenv "FLIN_SEGMENTS") or 1
for _, name in ipairs { ... } do
  local v = flin.stdlib[name]
  local x = suite.on_gpu(v:random { B = 1, T = 130, H = 2, K = 64, V = 64,
                                    dtype = "bfloat16" })
  local lying = flin.randn(1, 130, 64, 2):to "bfloat16":to "cuda"
    :transpose(3, 4)
  local function gradients(dy)
    x.save = true
    local _, _, saved = v:forward(x)
    x.save = nil
    -- three chunks of two heads, and a place that is spare for each segment: S
    -- before each, scores, factors of q and k, of two vectors of decays, and no
    -- gradient of S; of more than two their transitions, a number a row
    local kept = 4 * 64 * 64 * 2 + 2 * 64 * 4
    local more = segments > 2 and segments or 0
    suite.expect(name ~= "gla" or saved.bytes
                 == (3 + segments) * 2 * kept + more * 2 * 64 * 4,
                 "gla: %d bytes are saved", saved.bytes)
    return v:backward { saved = saved, dy = dy }
  end
  local even = gradients(lying:to "cpu":contiguous():to "cuda")
  for what, d in pairs(gradients(lying)) do
    if flin.is_tensor(d) then
      local is, far = even[what]:to "cpu", d:to "cpu"
      local off = (is - far):maxabs() / is:maxabs()
      suite.expect(off < 3e-2, "%s: d_%s is off by %.1e", name, what, off)
    end
  end
end

suite.finish()
