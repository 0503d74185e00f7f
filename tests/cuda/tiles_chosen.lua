-- Which of cuBLASLt's answers runs: none that deals out tiles by a counter; of
-- short sums of many tiles one of smaller tiles. On a driver of tests, which
-- leaves a letter of each product (FAKE_TILES, FAKE_PRODUCTS).
local flin = require "flin"
local suite = require "suite"

local product <const> = flin.layer {
  input = { x = "t d" }, weight = { w = "d n" },
  forward = function (x, w) return flin.dot(x.x, w.w) end
}

-- "s": of small tiles, "l": of large ones, "c": of a counter
local function ran(T, d, n, dtype)
  local path <const> = os.getenv "FAKE_PRODUCTS"
  io.open(path, "w"):close()
  product:forward { x = flin.zeros(1, T, d):to(dtype):to "cuda",
                    w = flin.zeros(d, n):to(dtype):to "cuda" }
  local f <close> = io.open(path)
  return f:read "a"
end

for _, case in ipairs {
  { 256, 64, 256, "bfloat16", "s" }, { 256, 64, 256, "float16", "s" },
  { 256, 1024, 256, "bfloat16", "s" }, { 256, 1032, 256, "bfloat16", "l" },
  { 256, 64, 128, "bfloat16", "l" }, { 256, 64, 256, "float32", "l" }
} do
  local T, d, n, dtype, wanted = table.unpack(case)
  local found <const> = ran(T, d, n, dtype)
  suite.expect(found == wanted, "%d x %d x %d of %s: %q ran, not %q", T, n, d,
               dtype, found, wanted)
end

suite.finish()
