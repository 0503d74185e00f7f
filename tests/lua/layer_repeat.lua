-- The library's layers, called again and again: the same inputs give the same
-- bits, the first time, the second and the fifth, with calls of other sizes
-- between, and stay as they are; what gradients of weights are added to gets
-- the same each time. On each road there is: parts as they are cheapest, apart,
-- as much as can be in calls, in pieces.
--   flin tests/lua/layer_repeat.lua [cuda] [NAME ...]
local flin = require "flin"
local expect = require "support.count".expect
local finish = require "support.count".finish

local to, only
for _, word in ipairs(arg) do
  if word == "cuda" then to = word else only = only or {} only[word] = true end
end
if to and not flin.cuda { poison = true } then
  print "skip: no GPU"
  os.exit(0)
end

local SIZES <const> = { d = 16, h = 2, k = 16, v = 16, r = 16, w = 4, s = 16,
                        e = 16, f = 16, g = 16 }
local PLANS <const> = { "cheapest", "separate", "fused", "pieces" }

local function with(a, b)
  local all = {}
  for name, x in pairs(a) do all[name] = x end
  for name, x in pairs(b) do all[name] = x end
  return all
end

local function sizes_of(layer, more)
  local s = {}
  for axis, n in pairs(SIZES) do
    s[axis] = layer.axes[axis] ~= nil and n or nil
  end
  return with(s, more)
end

local function moved(t)
  local there = {}
  for name, x in pairs(t) do
    there[name] = to and flin.is_tensor(x) and x:to(to) or x
  end
  return there
end

local function copied(t)
  local c = {}
  for name, x in pairs(t) do
    if flin.is_tensor(x) then c[name] = x:to "cpu":clone() end
  end
  return c
end

-- Every entry, those that are not a number, too.
local function same(a, b)
  local x, y = a:to "cpu":to "float64", b:to "cpu":to "float64"
  local off = (x - y):maxabs()
  return off == 0
end

local function differing(found, first)
  for name, x in pairs(first) do
    if not same(found[name], x) then return name end
  end
end

-- What a step of training and what a call alone give.
local function step(layer, x, how, dy, held)
  local y, state = layer:forward(with(x, how))
  local saving, _, saved = layer:forward(with(with(x, how), { save = true }))
  local into = {}
  for name, tensor in pairs(held) do
    into[name] = to and tensor:to(to) or tensor:clone()
  end
  local d = layer:backward(with(how, { saved = saved, dy = dy }))
  local again = layer:backward(with(how, { saved = saved, dy = dy,
                                           spend = true }))
  local whole = layer:backward(with(with(x, how), { dy = dy, into = into }))
  local all = { y = y, ["y that saves"] = saving }
  for name, s in pairs(state) do all["state " .. name] = s end
  for name, g in pairs(d) do
    if flin.is_tensor(g) then
      all["d_" .. name] = g
      all["d_" .. name .. " where it is spent"] = again[name]
      all["d_" .. name .. " whole"] = into[name] or whole[name]
    end
  end
  return copied(all)
end

for name, layer in pairs(flin.layers) do
  for _, plan in ipairs((not only or only[name]) and PLANS or {}) do
    for _, packed in ipairs { false, true } do
      local at = sizes_of(layer, { B = packed and 1 or 2, T = 70,
                                   dtype = "bfloat16" })
      local x = layer:random(at)
      local dy = flin.randn(x.x.shape):to(x.x.dtype)
      local small = layer:random(sizes_of(layer, { B = 1, T = 21,
                                                   dtype = "bfloat16" }))
      local held = {}
      for _, input in ipairs(layer.inputs) do
        if not input.axes:find "^t" then
          held[input.name] = flin.randn(x[input.name].shape)
        end
      end
      local kept = copied(x)
      x, small, dy = moved(x), moved(small), to and dy:to(to) or dy
      x.cu_seqlens = packed and { 0, 5, 5, 66, 67, 70 } or nil
      local how = { plan = plan ~= "cheapest" and plan or nil,
                    chunk = plan == "pieces" and 16 or nil }
      local text = ("%s, %s%s"):format(name, plan, packed and ", packed" or "")
      local first
      for i = 1, 5 do
        local found = step(layer, x, how, dy, held)
        first = first or found
        for what, tensor in pairs(found) do
          expect(text .. ": " .. what .. " is a number",
                tensor:to "float64":maxabs() < math.huge)
        end
        local which = differing(found, first)
        expect(("%s: call %d has the first's %s"):format(text, i,
              which or "bits"), not which)
        which = differing(x, kept)
        expect(("%s: call %d leaves %s as it was"):format(text, i,
              which or "all"), not which)
        layer:forward(with(small, how))
      end
    end
  end
end
finish()
