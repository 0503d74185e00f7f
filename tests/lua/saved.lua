-- What v:forward{ save = true } stores for v:backward: the same gradients, to
-- the bit, from the backward kernels alone.
local flin = require "flin"
local count = require "support.count"
local expect <const> = count.expect

local SIZE <const> = { k = 16, v = 20, m = 16, n = 2, r = 4, p = 8 }

local function random(v, B, T, H, HV, dtype)
  local x = {}
  for _, input in ipairs(v.inputs) do
    local timed = input.axes:find "^t" ~= nil
    local shape = timed and { B, T } or {}
    local wide = input.axes:find "v" or not input.axes:find "k"
    shape[#shape + 1] = wide and HV or H
    for axis in input.axes:gmatch "%S+" do
      if axis ~= "t" then shape[#shape + 1] = SIZE[axis] end
    end
    local t = flin.randn(table.unpack(shape)) * 0.3
    if input.domain == "log_decay" then t = -t * t end
    if input.domain == "unit" or input.domain == "positive" then t = t * t end
    x[input.name] = timed and t:to(dtype) or t
  end
  return x
end

-- The two ways to gradients; `more`: what a call has beside its inputs.
local function compare(name, v, x, more)
  local call = {}
  for key, t in pairs(x) do call[key] = t end
  for key, t in pairs(more) do call[key] = t end
  local y, state = v:forward(call)
  call.save = true
  local y2, state2, saved = v:forward(call)
  expect((y - y2):maxabs() <= 1e-2 * y:maxabs() + 1e-6, "%s: another y", name)
  local dy, dstate = flin.randn(y.shape), {}
  for s, t in pairs(state) do dstate[s] = flin.randn(t.shape) end
  local b = v:backward { saved = saved, dy = dy, dstate = dstate }
  call.save, call.dy, call.dstate = nil, dy, dstate
  local a = v:backward(call)
  for key, t in pairs(a) do
    if key ~= "initial_state" then
      expect((t - b[key]):maxabs() == 0, "%s: d_%s differs", name, key)
    end
  end
  for key, t in pairs(a.initial_state) do
    expect((t - b.initial_state[key]):maxabs() == 0, "%s: of state %s", name,
           key)
  end
  return saved, call, state
end

for _, name in ipairs(flin.stdlib_names) do
  local v = flin.stdlib[name]
  local saved = compare(name, v, random(v, 2, 75, 1, 2, "float32"), {})
  expect(saved.bytes > 0, "%s: nothing is stored", name)
end

-- Packed sequences, an empty one among them; an initial state; bfloat16; a
-- chunk of the caller's; one thread.
do
  local v = flin.stdlib.gated_deltanet
  local x = random(v, 1, 90, 2, 2, "bfloat16")
  local S = flin.randn(3, 2, SIZE.k, SIZE.v)
  compare("packed", v, x, { cu_seqlens = { 0, 33, 33, 90 },
                            initial_state = { S = S } })
  compare("chunk 16", v, x, { chunk = 16, threads = 1 })
end

-- What is stored is not used once an argument is another.
do
  local v = flin.stdlib.kda
  local x = random(v, 1, 70, 1, 1, "float32")
  local saved, call = compare("kda", v, x, {})
  local other = {}
  for key, t in pairs(call) do other[key] = t end
  other.q = x.q * 2
  local a = v:backward { saved = saved, dy = call.dy, dstate = call.dstate,
                         q = other.q }
  expect((a.k - v:backward(other).k):maxabs() == 0, "another q")
  local before = v:backward(call)
  flin.chunk = 16                       -- another plan
  local b = v:backward { saved = saved, dy = call.dy, dstate = call.dstate }
  flin.chunk = nil
  expect((b.k - before.k):maxabs() < 1e-5, "another chunk")
end

-- Nor is what is not of this call: it is refused.
local function refused(message, v, call)
  local ok, e = pcall(v.backward, v, call)
  expect(not ok and tostring(e):find(message, 1, true), "%s: %s", message, e)
end
do
  local v, dy = flin.stdlib.kda, flin.randn(1, 70, 1, SIZE.v)
  local x = random(v, 1, 70, 1, 1, "float32")
  local S = flin.randn(1, 1, SIZE.k, SIZE.v)
  x.save, x.initial_state = true, { S = S }
  local _, _, saved = v:forward(x)
  local want = v:backward { saved = saved, dy = dy }
  x.initial_state.S = S * 2             -- of the table alone
  expect((v:backward { saved = saved, dy = dy }.k - want.k):maxabs() == 0,
         "the state that was given")
  for _, wrong in ipairs { flin.zeros(3), "none", { bytes = 3 }, 3 } do
    refused("saved must be what v:forward gave", v, { saved = wrong, dy = dy })
  end
  refused("saved is of another variant", flin.stdlib.gdn2,
          { saved = saved, dy = dy })
  local written = "k has been written to since v:forward saved it"
  x.k:narrow(2, 1, 3):fill(1)
  refused(written, v, { saved = saved, dy = dy })
  x.k[{ 1, 1, 1, 1 }] = 2
  refused(written, v, { saved = saved, dy = dy, q = x.q })
  v:backward { saved = saved, dy = dy, k = x.k }
  S:copy(S * 3)
  refused("initial_state.S has been", v, { saved = saved, dy = dy, k = x.k })
end
do
  local v, dy = flin.stdlib.linear, flin.randn(1, 1, 1, 4)
  local x, S = flin.randn(1, 1, 1, 4), flin.randn(1, 1, 4, 4)
  local call = { q = x, k = x, v = x, initial_state = { S = S }, save = true }
  local _, _, saved = v:forward(call)
  v:step { q = x, k = x, v = x, state = { S = S }, inplace = true }
  refused("initial_state.S has been", v, { saved = saved, dy = dy })
end

-- Token by token nothing is stored, and the gradients are there.
do
  local v = flin.stdlib.linear
  local saved = compare("serial", v, random(v, 1, 20, 1, 1, "float32"),
                        { serial = true })
  expect(saved.bytes == 0, "serial: %d bytes are stored", saved.bytes)
end

count.finish()
