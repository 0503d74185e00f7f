-- A chunk that its tiles have too much room for, some of them in the workspace:
-- what is read there, somebody has written. For a driver of tests, which looks
-- (FAKE_CHECKED=1), of a GPU whose shared memory is too little (FAKE_ARCH=12).
local flin = require "flin"
local suite = require "suite"

suite.gpu()
local v = flin.stdlib.gla
local host = v:random { B = 1, T = 17, H = 2, K = 32, V = 64, seed = 1,
                        dtype = "bfloat16" }
host.dy = flin.randn(1, 17, 2, 64):to "bfloat16"
local grad, want = v:backward(suite.on_gpu(host)), v:reference_backward(host)
for _, key in ipairs { "q", "k", "v", "g" } do
  local off = suite.relative(grad[key], want[key])
  suite.expect(off <= 8e-3, "gradient of %s is off by %.1e", key, off)
end
suite.finish()
