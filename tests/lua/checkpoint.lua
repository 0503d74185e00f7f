-- Layers whose calls keep their inputs alone for the way back: gradients, and
-- what comes out, have the bits of those that keep all. On the CPU or, "cuda",
-- a GPU, where what is kept is counted.
local flin = require "flin"
local cuda = ... == "cuda"
local passed, failed = 0, 0

local function check(name, ok, what)
  if ok then
    passed = passed + 1
  else
    failed = failed + 1
    print("FAIL " .. name, what)
  end
end

local function there(args)
  local to = {}
  for name, x in pairs(args) do
    to[name] = cuda and flin.is_tensor(x) and x:to "cuda" or x
  end
  return to
end

-- Every number, none of them NaN.
local function same(x, y)
  x, y = x:to "cpu":to "float64", y:to "cpu":to "float64"
  return ((x - y) * (x - y)):sum() == 0
end

local function forward(checkpoint)
  return { name = "mixer", input = { x = "t d" }, checkpoint = checkpoint,
    weight = { Wq = "d h k", Wk = "d h k", Wv = "d h v", Wo = "h v d",
               norm = "d", Wg = "d n", Wd = "n d" },
    forward = function (x, w)
      local z = flin.rms_norm(x.x, "d") * w.norm
      local y = flin.stdlib.deltanet {
        q = flin.dot(z, w.Wq), k = flin.unit_norm(flin.dot(z, w.Wk), "k"),
        v = flin.dot(z, w.Wv), beta = 0.5 }
      local u = x.x + flin.dot(y, w.Wo)
      local n = flin.softmax(flin.dot(u, w.Wg), "n")
      return u + flin.dot(n, w.Wd)
    end }
end
local kept, defined = flin.layer(forward()), flin.layer(forward(true))

local function holds(name, layer, args, other)
  args = there(args)
  local y, _, all = layer:forward(args, { save = true })
  local dy = there { flin.randn(y.shape, { seed = 7 }):to(y.dtype) }[1]
  local none, y1, d, _
  if other then
    y1, _, none = other:forward(args, { save = true })
    d = other:backward { saved = none, dy = dy }
  else
    y1, _, none = layer:forward(args, { save = true, checkpoint = true })
    d = layer:backward { saved = none, dy = dy }
  end
  local want = layer:backward { saved = all, dy = dy }
  check(name .. ": y, the same bits", same(y, y1))
  check(name .. ": nothing is kept", none.bytes == 0, none.bytes)
  check(name .. ": else there is", not cuda or all.bytes > 0, all.bytes)
  for x, g in pairs(want) do
    if flin.is_tensor(g) then
      check(name .. ": d_" .. x .. ", the same bits", same(d[x], g))
    end
  end
end

local args = kept:random { B = 2, T = 70, d = 16, h = 2, k = 16, v = 16,
                           n = 33 }
holds("by the call", kept, args)
holds("by the definition", kept, args, defined)
for _, name in ipairs(cuda and {} or { "gla", "gated_deltanet" }) do
  local layer = flin.layers[name]
  holds(name, layer, layer:random { B = 1, T = 70, size = 16 })
end

local ok, e = pcall(function ()
  local v = flin.stdlib.linear
  v:forward(v:random { T = 4, K = 4, V = 4 }, { checkpoint = true })
end)
check("a variant is refused", not ok and tostring(e):find("is no layer", 1,
      true), tostring(e))

print(passed .. " passed, " .. failed .. " failed")
os.exit(failed == 0 and 0 or 1)
