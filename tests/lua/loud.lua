-- Scores whose exponentials float64 holds and float32 does not, which a result
-- divides by their sum: on the CPU, by chunks and token by token, both ways.
local flin = require "flin"

local passed, failed = 0, 0
local function expect(ok, ...)
  if ok then passed = passed + 1 return end
  failed = failed + 1
  print("FAIL " .. string.format(...))
end

-- as loud as the float64 step's own gradients, which square sums, are finite
for name, loud in pairs { abc = 8, gsa = 4 } do
  for _, by in ipairs { 1, loud } do
    local v = flin.stdlib[name]:map { q = function (q) return by * q end }
    for _, chunk in ipairs { 1, 32, 64 } do
      local off = v:check { B = 1, T = 70, H = 1, K = 128, V = 64, M = 64,
                            dtype = "float32", backend = "cpu",
                            chunk = chunk }
      for what, x in pairs(off) do
        if type(x) == "number" then
          expect(x <= 1e-5 * by, "%s, scores times %d, chunks of %d: %s is "
                 .. "off by %.1e", name, by, chunk, what, x)
        end
      end
    end
  end
end
print(("%d passed, %d failed"):format(passed, failed))
os.exit(failed == 0)
