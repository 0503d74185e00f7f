-- Methods over the rows of a tensor, and the views that repeat.
local flin = require "flin"

local count = require "support.count"
local expect <const> = count.expect

local function text(x)
  if type(x) ~= "table" then return ("%.5g"):format(x) end
  local parts = {}
  for i, y in ipairs(x) do parts[i] = text(y) end
  return "{" .. table.concat(parts, " ") .. "}"
end

local function is(what, t, wanted)
  local got = text(t:totable())
  expect(got == wanted, "%s: %s instead of %s", what, got, wanted)
end

local function refused(what, pattern, f)
  local ok, message = pcall(f)
  expect(not ok and tostring(message):find(pattern, 1, true),
         "%s: wanted an error with '%s', got %s", what, pattern, message)
end

local x = flin.tensor { { 3, 4, 0 }, { 0, 0, 0 }, { -1, 2, 2 } }
local column = x:transpose(1, 2)
for _, dtype in ipairs { "float32", "float64", "bfloat16", "float16" } do
  is("norm " .. dtype, x:to(dtype):norm(), "{5 0 3}")
end
is("norm of columns", column:norm(), "{3.1623 4.4721 2}")
is("unit", x:unit(), "{{0.6 0.8 0} {0 0 0} {-0.33333 0.66667 0.66667}}")
is("argmax", x:argmax(), "{2 1 2}")
is("argmax of NaN", flin.tensor({ { 1, 0 / 0, 5 } }):argmax(), "{2}")
is("logsumexp", x:logsumexp(), "{4.3266 1.0986 2.7177}")
is("logsumexp, scaled", x:logsumexp(1000), "{4000 1.0986 2000.7}")
is("gather", x:gather(flin.tensor { 1, 2, 3 }), "{3 0 2}")
is("gather of columns", column:gather(flin.tensor { 1, 3, 3 }), "{3 2 2}")
is("matmul", x:matmul(flin.tensor { { 1, 0 }, { 0, 1 }, { 1, 1 } }),
   "{{3 4} {0 0} {1 4}}")
is("sum of rows", x:sum_over(2), "{7 0 3}")
is("sum over rows", x:sum_over(1), "{2 6 2}")
is("weighted", x:sum_over(1, flin.tensor { 2, 5, -1 }), "{7 6 -2}")

local cube = flin.arange(24):reshape(2, 3, 4)
is("sum over the middle", cube:sum_over(2), "{{12 15 18 21} {48 51 54 57}}")
is("weights of a cube", cube:sum_over(1, flin.tensor { { 1, 0, 0 },
                                                       { 0, 0, 1 } }),
   "{{0 1 2 3} {0 0 0 0} {20 21 22 23}}")

is("expand", flin.tensor({ 1, 2 }):expand(2, 3), "{{1 1 1} {2 2 2}}")
is("windows", flin.tensor({ 1, 2, 3, 4 }):windows(1, 2, 2),
   "{{1 2} {2 3} {3 4}}")
is("windows to the end", x:windows(1, 2, 3),
   "{{{3 0} {4 0} {0 0}} {{0 -1} {0 2} {0 2}}}")

refused("gather, too far", "position", function ()
  x:gather(flin.tensor { 1, 2, 4 })
end)
refused("gather, shape", "gather: an index of shape [2]", function ()
  x:gather(flin.tensor { 1, 2 })
end)
refused("weights, shape", "weights of shape [2]", function ()
  x:sum_over(1, flin.tensor { 1, 2 })
end)
refused("weights of the last axis", "weights are for rows", function ()
  x:sum_over(2, flin.tensor { 1, 2, 3 })
end)
refused("axis", "axis 3 of a tensor of shape [3, 3]", function ()
  x:sum_over(3)
end)
refused("empty rows", "the rows are empty", function ()
  flin.zeros({ 2, 0 }):argmax()
end)
refused("matmul, shape", "a matrix of shape [2, 2]", function ()
  x:matmul(flin.zeros { 2, 2 })
end)
refused("windows, too many", "windows: 4 entries of axis 1", function ()
  x:windows(1, 4, 3)
end)
refused("expand, rank", "at most 8 axes", function ()
  flin.zeros({ 1, 1, 1, 1, 1, 1, 1, 1 }):expand(1, 2)
end)

count.finish()
