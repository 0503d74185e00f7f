-- A step while its stream records a graph, as the driver of tests says as long
-- as there is a file FAKE_RECORDING: nothing is compiled then, which
-- FAKE_SOURCES counts. Where no kernel of single tokens is there of the call's
-- types, it goes by that of any call.
local flin = require "flin"
local suite = require "suite"

suite.gpu()
local recording = os.getenv "FAKE_RECORDING"
local v = flin.stdlib.gated_deltanet

local function compiled()
  local f = io.open(os.getenv "FAKE_SOURCES")
  local n = f and f:seek "end" or 0
  if f then f:close() end
  return n
end

-- T tokens that may be taken back go by the kernel of any call. Results are
-- rounded to the type of q.
local function check(what, dtype, most, T)
  local call = v:random { B = 2, T = T, H = 2, K = 32, V = 32 }
  for _, name in ipairs { "q", "k", "v" } do
    call[name] = call[name]:to(dtype)
  end
  call.initial_state = { S = flin.randn({ 2, 2, 32, 32 }, { seed = 7 }) }
  local y, left = v:reference(call)
  call.state = call.initial_state
  call.initial_state, call.inplace = nil, T == 1 or nil
  call.state = suite.on_gpu(call.state)
  call = suite.on_gpu(call)
  local got, own = (T == 1 and v.step or v.verify)(v, call)
  local off = suite.relative(got, y)
  suite.expect(off <= most, "%s: y is off by %.1e", what, off)
  if T > 1 then return end
  off = suite.relative(own.S, left.S)
  suite.expect(off <= 1e-5, "%s: S is off by %.1e", what, off)
end

local all = compiled()
check("float32", "float32", 1e-5, 1)
check("bfloat16, two tokens", "bfloat16", 5e-3, 2)
suite.expect(compiled() > all, "nothing is compiled")
all = compiled()
io.open(recording, "w"):close()
check("recorded, float32", "float32", 1e-5, 1)
check("recorded, bfloat16", "bfloat16", 5e-3, 1)
suite.expect(compiled() == all, "compiled while recording")
os.remove(recording)
suite.finish()
