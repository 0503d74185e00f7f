-- What holds of every variant of the standard library, whatever its numbers:
-- extreme gates, sequences cut in two, NaN that stays where it is, threads.
local flin = require "flin"

local count = require "support.count"
local expect <const> = count.expect

local SIZE <const> = { k = 16, v = 20, m = 16, p = 8, n = 2, r = 4 }

-- Gates: mostly forget nothing or everything, some in between.
local function extreme_gate(u)
  if u < -0.8 then return -104 end
  return u < 0.8 and 0 or -u * u
end

local DOMAIN <const> = {
  log_decay = function (u) return -math.log(1 + math.exp(-u)) end,
  unit = function (u) return 1 / (1 + math.exp(-u)) end,
  positive = function (u) return math.log(1 + math.exp(u)) end,
  angle = function (u) return u end,
}

-- Random inputs of T tokens, of two batch entries and two heads.
local function inputs_of(variant, T, gate)
  local inputs = {}
  for i, input in ipairs(variant.inputs) do
    local timed = input.axes:find "t" ~= nil
    local shape = timed and { 2, T, 2 } or { 2 }
    for axis in input.axes:gmatch "%a+" do
      if axis ~= "t" then shape[#shape + 1] = SIZE[axis] end
    end
    local x, f = flin.randn(shape, { seed = i }), DOMAIN[input.domain]
    if input.domain == "log_decay" then f = gate or f end
    if input.domain == "unit_norm" then x = x:unit() end
    inputs[input.name] = f and x:map(f) or x
  end
  return inputs
end

local function with(inputs, more)
  local out = {}
  for name, x in pairs(inputs) do out[name] = x end
  for name, x in pairs(more) do out[name] = x end
  return out
end

local function part(variant, inputs, from, count)
  local out = {}
  for _, input in ipairs(variant.inputs) do
    local x = inputs[input.name]
    out[input.name] = input.axes:find "t" and x:narrow(2, from, count) or x
  end
  return out
end

local function relative(a, b)
  local off = a:to "float64" - b:to "float64"
  local size = (b:to "float64" * b:to "float64"):sum()
  return ((off * off):sum() / math.max(size, 1e-30))^0.5
end

local function same_bits(a, b) return (a - b):maxabs() == 0 end

-- No gate in [-104, 0] overflows. A chunk of 256 sums them to 1e4, of which
-- float32 rounds 5e-4 away, where nearly all weights are 0: hence 3e-5.
local function extremes(name, v)
  local inputs = inputs_of(v, 150, extreme_gate)
  local wanted = v:reference(inputs)
  for _, chunk in ipairs { 16, 64, 256 } do
    local y = v:forward(with(inputs, { chunk = chunk }))
    local off = relative(y, wanted)
    expect(off <= (chunk > 64 and 3e-5 or 1e-5),
           "%s: extreme gates, chunk %d: off by %.1e", name, chunk, off)
  end
end

-- A sequence in two calls, the state handed on, is the sequence in one.
local function split(name, v)
  local inputs = inputs_of(v, 100)
  local y = v:forward(inputs)
  local first, state = v:forward(part(v, inputs, 1, 37))
  local rest = v:forward(with(part(v, inputs, 38, 63),
                              { initial_state = state }))
  local off = math.max(relative(first, y:narrow(2, 1, 37)),
                       relative(rest, y:narrow(2, 38, 63)))
  expect(off <= 1e-5, "%s: cut in two: off by %.1e", name, off)
end

-- A NaN in token 70 of head 1 of entry 1 leaves chunk 1, head 2 and entry 2
-- as they were, bit by bit; and is seen in what comes after it.
local function contained(name, v)
  local inputs = inputs_of(v, 100)
  local y = v:forward(inputs)
  local value = inputs.v and "v" or "x"
  local spoilt = inputs[value]:clone()
  spoilt:narrow(1, 1, 1):narrow(2, 70, 1):narrow(3, 1, 1):fill(0 / 0)
  local z = v:forward(with(inputs, { [value] = spoilt }))
  expect(same_bits(y:narrow(2, 1, 64), z:narrow(2, 1, 64)),
         "%s: NaN reaches an earlier chunk", name)
  expect(same_bits(y:narrow(3, 2, 1), z:narrow(3, 2, 1)),
         "%s: NaN reaches another head", name)
  expect(same_bits(y:narrow(1, 2, 1), z:narrow(1, 2, 1)),
         "%s: NaN reaches another sequence", name)
  local last = z[{ 1, 100, 1, 1 }]
  expect(last ~= last, "%s: NaN gets lost", name)
end

-- The same bits however many threads, and every time.
local function threads(name, v)
  local inputs = inputs_of(v, 130)
  local y = v:forward(with(inputs, { threads = 1 }))
  for _, n in ipairs { 1, 2, 3 } do
    expect(same_bits(y, v:forward(with(inputs, { threads = n }))),
           "%s: %d threads change the bits", name, n)
  end
end

for name, v in pairs(flin.stdlib) do
  extremes(name, v)
  split(name, v)
  contained(name, v)
  threads(name, v)
end

count.finish()
