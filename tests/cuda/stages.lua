-- v:stage(i):summary on the GPU as on the host, of all variants or some:
--   flin tests/cuda/stages.lua [NAME...]
local flin = require "flin"
local suite = require "suite"
local expect <const> = suite.expect

suite.gpu()

local function by_name(t, stage)
  return flin.is_tensor(t) and { [stage.states[1]] = t } or t
end

-- Of angles, which are kept modulo 2 pi, the way round is the shorter one.
local function off(a, b, angle)
  if not angle then return suite.relative(a, b) end
  local d = (a:to "cpu":to "float64" - b:to "float64"):totable()
  local function most(t)
    if type(t) == "number" then return math.abs(math.sin(t / 2)) end
    local m = 0
    for _, x in ipairs(t) do m = math.max(m, most(x)) end
    return m
  end
  return most(d)
end

local function check(name)
  local v = flin.stdlib[name]
  local x = v:random { B = 2, T = 70, H = 2, K = 8, V = 6 }
  local _, state = v:forward(x)
  local angle = {}
  for _, s in ipairs(v.states) do angle[s.name] = s.angle end
  for i, stage in ipairs(v:stages()) do
    local host = {}
    for k, t in pairs(x) do host[k] = t end
    for _, need in ipairs(stage.needs) do
      host.initial_state = host.initial_state or {}
      host.initial_state[need] = state[need]
    end
    local there = suite.on_gpu(host)
    if host.initial_state then
      there.initial_state = suite.on_gpu(host.initial_state)
    end
    local own, M = v:stage(i):summary(host)
    local ok, own_there, M_there = pcall(function ()
      return v:stage(i):summary(there)
    end)
    expect(ok, "%s, stage %d: %s", name, i, own_there)
    if ok then
      own_there, M_there = by_name(own_there, stage), by_name(M_there, stage)
      for s, t in pairs(by_name(own, stage)) do
        expect(off(own_there[s], t, angle[s]) <= 1e-4, "%s: own %s is off by "
               .. "%.1e", name, s, off(own_there[s], t, angle[s]))
      end
      for s, t in pairs(by_name(M, stage)) do
        expect(suite.relative(M_there[s], t) <= 1e-4, "%s: M of %s is off by "
               .. "%.1e", name, s, suite.relative(M_there[s], t))
      end
    end
  end
end

for _, name in ipairs(#arg > 0 and arg or flin.stdlib_names) do check(name) end
suite.finish()
