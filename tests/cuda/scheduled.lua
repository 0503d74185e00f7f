-- Calls whose kernels a schedule is made for, by the float64 step: types,
-- heads that share, sizes, states, sequences.
--   flin tests/cuda/scheduled.lua [NAME[,K=64...] ...]
-- typed=1: gates and constants in float32, gradients from what forward saved.
-- On a driver of tests FAKE_SOURCES counts the programs from schedules.
local flin = require "flin"
local suite = require "suite"
local expect = suite.expect

suite.gpu()

local cases <const> = {
  "simple_gla,B=1,T=130,H=1,HV=2,K=64,V=64,dtype=float16",
}

-- "NAME,K=64,cu=0/3/70": the name, and the rest by name.
local function read(text)
  local name = text:match "^[%w_]+"
  local at = { seed = 1, dtype = "bfloat16" }
  for key, x in text:gmatch ",(%a+)=([%w/]+)" do
    if key == "cu" then
      at.cu_seqlens = {}
      for n in x:gmatch "%d+" do
        table.insert(at.cu_seqlens, math.tointeger(n))
      end
    else
      at[key] = tonumber(x) or x
    end
  end
  return name, at
end

local function limit_of(dtype, what)
  local fine = dtype == "float16" and 0.25 or 1
  return fine * (what:find "^d_" and 8e-3 or 4e-3)
end

local function check_typed(text, v, at)
  local host = suite.typed(v, v:random(at), at.dtype)
  host.cu_seqlens = at.cu_seqlens
  host.dy = flin.randn(v:reference(host).shape, { seed = 9 }):to(at.dtype)
  suite.check_gradients(text, v, host, function (input)
    return limit_of(at.dtype, "d_" .. input)
  end)
end

local function check(text)
  local name, at = read(text)
  local v = flin.stdlib[name]
  if at.typed then
    at.typed = nil
    return check_typed(text, v, at)
  end
  at.backend = "cuda"
  for what, off in pairs(v:check(at)) do
    if type(off) == "number" and what ~= "worst" then
      expect(off <= limit_of(at.dtype, what), "%s: %s is off by %.1e", text,
             what, off)
    end
  end
end

-- How many programs there were, of those that a schedule printed.
local function programs()
  local counted = io.open(os.getenv "FAKE_SOURCES" or "/dev/null")
  local n = counted and #counted:read "a" or 0
  if counted then counted:close() end
  return n
end

for _, text in ipairs(... and { ... } or cases) do
  local before = programs()
  local ok, why_not = pcall(check, text)
  expect(ok, "%s: %s", text, why_not)
  expect(programs() > before or not os.getenv "FAKE_SOURCES",
         "%s: no kernel came from a schedule", text)
end
suite.finish()
