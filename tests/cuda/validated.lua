-- What validate = true costs on a GPU: ms a call without it and with it, and
-- what the tensors' bytes would take alone. Calls without it wait for nothing,
-- so many are made; seconds begin where the clock ticks.
--   flin tests/cuda/validated.lua [SECONDS] [NAME ...]
local flin = require "flin"
require "suite".gpu()

local SIZE <const> = { B = 1, T = 8192, H = 32, K = 128, V = 128,
                       dtype = "bfloat16" }
local BYTES_A_MS <const> = 4e9          -- of an H200's memory

local seconds, names = 3, {}
for _, word in ipairs { ... } do
  if tonumber(word) then seconds = tonumber(word)
  else names[#names + 1] = word end
end
if #names == 0 then names = { "gla", "simple_gla", "gated_deltanet" } end

local function tick()
  local now = os.time()
  while os.time() == now do end
end

-- The results are waited for by reading one of them.
local function time(v, call)
  local n, y = 0, v:forward(call)
  y:narrow(2, 1, 1):to "cpu"
  tick()
  local start = os.time()
  while os.time() < start + seconds do
    for _ = 1, 20 do y = v:forward(call) end
    n = n + 20
    y:narrow(2, 1, 1):to "cpu"
  end
  return 1e3 * seconds / n
end

for _, name in ipairs(names) do
  local v, call, bytes = flin.stdlib[name], {}, 0
  for key, x in pairs(v:random(SIZE)) do
    if flin.is_tensor(x) then
      bytes = bytes + (x.dtype == "float32" and 4 or 2) * x.count
      x = x:to "cuda"
    end
    call[key] = x
  end
  bytes = bytes + 2 * SIZE.T * SIZE.H * SIZE.V  -- y
  local without = time(v, call)
  call.validate = true
  print(("%-16s %6.3f ms, validated %6.3f; to read it all once %.3f")
        :format(name, without, time(v, call), bytes / BYTES_A_MS))
end
