-- Layers on a GPU against their float64 step: forward, gradients, decoding,
-- states, packed sequences; tensors that live there, one workspace, the same
-- bits each time.
--   flin tests/cuda/layers.lua [large] [NAME ...]
-- large: sizes of models, too.
local flin = require "flin"
local suite = require "suite"
local expect = suite.expect

local only, large
for _, word in ipairs { ... } do
  if word == "large" then large = true
  else only = only or {} only[word] = true end
end

suite.gpu { poison = true }

-- What is summed over all tokens, or over a row, is off by more; a head's one
-- number by as much as it has cancelled: float32 shows that it is right.
local function limit_of(layer, dtype, what)
  if dtype == "float32" then return 2e-4 end
  for _, input in ipairs(layer.inputs) do
    if what == "d_" .. input.name and input.axes == "h" then
      return math.huge
    end
  end
  return what:find "^d_" and 6e-2 or 1e-2
end

local function check(name, layer, case)
  case.backend = "cuda"
  local text = ("%s %s%s"):format(name, case.dtype, case.cu_seqlens
                                  and ", packed" or "")
  local ok, found = pcall(layer.check, layer, case)
  expect(ok, "%s: %s", text, found)
  for what, off in pairs(ok and found or {}) do
    if type(off) == "number" and what ~= "worst" then
      expect(off <= limit_of(layer, case.dtype, what), "%s: %s is off by %.1e",
             text, what, off)
    end
  end
end

local function with(a, b)
  local all = {}
  for k, v in pairs(a) do all[k] = v end
  for k, v in pairs(b) do all[k] = v end
  return all
end

local function moved(tensors, to)
  local there = {}
  for k, v in pairs(tensors) do there[k] = v:to(to) end
  return there
end

-- Tensors that live there, twice: the same bits, no memory beside results.
local function lives(name, layer, sizes)
  local x = moved(layer:random(sizes), "cuda")
  local y, state = layer:forward(x)
  expect(y.device == "cuda", "%s: y is on the %s", name, y.device)
  local d = layer:backward(with(x, { dy = y }))
  local again = layer:forward(x)
  local d_again = layer:backward(with(x, { dy = y }))
  local saving, _, saved = layer:forward(with(x, { save = true }))
  local d_saved = layer:backward { saved = saved, dy = y }
  expect(saved ~= nil, "%s: nothing is saved", name)
  for what, tensor in pairs(with(d, { y = y })) do
    local second = what == "y" and again or d_again[what]
    local third = what == "y" and saving or d_saved[what]
    expect(not flin.is_tensor(tensor)
           or (tensor:to "cpu" - second:to "cpu"):maxabs() == 0,
           "%s: %s differs from call to call", name, what)
    expect(not flin.is_tensor(tensor)
           or (tensor:to "cpu" - third:to "cpu"):maxabs() == 0,
           "%s: %s differs from what was saved", name, what)
  end
end

-- From a loss of the final states alone.
local function of_states(name, layer, sizes)
  local x = layer:random(sizes)
  local _, state = layer:forward(x)
  local d = layer:backward(with(x, { dstate = state }))
  local there = layer:backward(with(moved(x, "cuda"),
                                    { dstate = moved(state, "cuda") }))
  for what, tensor in pairs(d) do
    if flin.is_tensor(tensor) then
      expect(suite.relative(there[what], tensor) < 2e-4,
             "%s, of its states alone: d_%s", name, what)
    end
  end
end

local sizes <const> = { d = 16, h = 2, k = 16, v = 16, r = 16, w = 4, s = 16,
                        e = 16, f = 16, g = 16 }
local function sizes_of(layer, more)
  local s = {}
  for axis, n in pairs(sizes) do
    s[axis] = layer.axes[axis] ~= nil and n or nil
  end
  return with(s, more)
end

for name, layer in pairs(flin.layers) do
  if not only or only[name] then
    for _, dtype in ipairs { "float32", "bfloat16" } do
      check(name, layer, sizes_of(layer, { B = 2, T = 70, dtype = dtype }))
    end
    check(name, layer, sizes_of(layer, { dtype = "float32",
      cu_seqlens = { 0, 5, 5, 70, 71 } }))
    lives(name, layer, sizes_of(layer, { B = 2, T = 70, dtype = "bfloat16" }))
    of_states(name, layer, sizes_of(layer, { B = 2, T = 70,
                                             dtype = "float32" }))
    if name == "mamba2" then            -- a norm over many heads
      check(name, layer, sizes_of(layer, { T = 21, h = 16, d = 4, k = 8,
                                           dtype = "float32" }))
    end
    if large then
      check(name, layer, sizes_of(layer, { B = 2, T = 200, d = 256, h = 4,
        k = 64, v = 128, dtype = "bfloat16" }))
    end
  end
end

suite.finish()
