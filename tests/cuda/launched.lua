-- Whether the kernels that v:plan shows are those that a call launches, one to
-- one and in order: of each variant, forward alone and both ways. Run by
-- tests/cuda/launched.c on a driver of tests that runs nothing.
local flin = require "flin"

local only <const>, K <const>, V <const> = ...
local path <const> = os.getenv "FAKE_EMPTY"
local passed, failed = 0, 0

-- What f launches: names, threads of a block, bytes of its shared memory.
local function launched(f)
  io.open(path, "w"):close()
  f()
  local list = {}
  for line in io.lines(path) do
    list[#list + 1] = line
  end
  return table.concat(list, ", ")
end

-- With these sizes of axes; slots, and what reads them, are as many as keys.
local function sized(v, size, call)
  call.K, call.V = size[1], size[2]
  for _, input in ipairs(v.inputs) do
    if input.axes:find "m" then call.M = size[1] end
    if input.axes:find "r m" then call.R = size[1] end
  end
  return call
end

-- Matrices of bfloat16, a number a token of float32; heads fill eight of
-- eleven multiprocessors, as those of a usual call do 96 of an H200's 132.
-- Nobody reads their numbers.
local function inputs_of(v, size)
  local x = v:random(sized(v, size, { B = 1, T = 1, H = 8,
                                      dtype = "bfloat16" }))
  for _, input in ipairs(v.inputs) do
    local number = not input.axes:find "[^t%s]"
    local shape = x[input.name].shape
    if input.axes:find "t" then shape[2] = 2048 end
    x[input.name] = flin.zeros(table.unpack(shape))
                        :to(number and "float32" or "bfloat16"):to "cuda"
  end
  return x
end

local function planned(v, size, backward)
  local list = {}
  local plan = v:plan(sized(v, size, { machine = "h200",
                                       backward = backward }))
  for _, kernel in ipairs(plan.kernels) do
    list[#list + 1] = ("%s %d %d"):format(kernel.name, 32 * kernel.warps,
                                          kernel.shared)
  end
  return table.concat(list, ", ")
end

local function compare(v, size, backward)
  local x = inputs_of(v, size)
  local want = planned(v, size, backward)
  local got = launched(function ()
    if backward then
      x.save = true
      local y, _, saved = v:forward(x)
      v:backward { saved = saved, dy = y }
    else
      v:forward(x)
    end
  end)
  if got == want then
    passed = passed + 1
  else
    failed = failed + 1
    print(("FAIL %s %dx%d %s:\n  planned  %s\n  launched %s"):format(v.name,
          size[1], size[2], backward and "both ways" or "forward", want, got))
  end
end

local sizes <const> = K and { { tonumber(K), tonumber(V) } }
                      or { { 128, 128 }, { 64, 64 } }
for _, name in ipairs(only and { only } or flin.stdlib_names) do
  for _, size in ipairs(sizes) do
    compare(flin.stdlib[name], size, false)
    compare(flin.stdlib[name], size, true)
  end
end
print(("%d passed, %d failed"):format(passed, failed))
