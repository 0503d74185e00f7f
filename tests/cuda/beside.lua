-- Whether the programs over rows that a layer's first call takes are compiled
-- side by side, and those of its way back: on a driver of tests that runs
-- nothing and says how many are compiled at a time (FAKE_BESIDE).
local flin = require "flin"
local suite = require "suite"

suite.gpu()
local cores <const> = io.popen "nproc":read "n"
if cores and cores < 2 then
  print "skip: of one core, where nothing is side by side"
  os.exit(0)
end

local path <const> = os.getenv "FAKE_BESIDE"
local layer <const> = flin.layer {
  name = "two_taps", input = { x = "t d" },
  weight = { a = "d w", W = "d e", b = "e w" },
  forward = function (x, w)
    local h = flin.dot(flin.silu(flin.conv(x.x, w.a)), w.W)
    return flin.silu(flin.conv(h, w.b))
  end,
}
local args <const> = {}
for name, shape in pairs { x = { 1, 8, 16 }, a = { 16, 4 }, W = { 16, 32 },
                           b = { 32, 4 } } do
  args[name] = flin.zeros(shape):to "cuda"
end

-- The most at a time while f runs.
local function most(f)
  io.open(path, "w"):close()
  f()
  local n = 0
  for line in io.lines(path) do n = math.max(n, tonumber(line)) end
  return n
end

local n = most(function () layer:forward(args) end)
suite.expect(n >= 2, "of the way forward %d at a time", n)
n = most(function ()
  layer:backward(args, { dy = flin.zeros(1, 8, 32):to "cuda" })
end)
suite.expect(n >= 2, "of the way back %d at a time", n)
n = most(function () layer:forward(args) end)
suite.expect(n == 0, "of a call that was made before %d at a time", n)
suite.finish()
