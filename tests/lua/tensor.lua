-- Tensors: making, indexing, views, arithmetic, conversion.
local flin = require "flin"
local count = require "support.count"
local expect <const> = count.expect

local function same(t, nested, what)
  local function equal(a, b)
    if type(a) ~= "table" then
      return a == b
    end
    if type(b) ~= "table" or #a ~= #b then
      return false
    end
    for i = 1, #a do
      if not equal(a[i], b[i]) then
        return false
      end
    end
    return true
  end
  expect(equal(t:totable(), nested), what)
end

local function refuses(message, f, ...)
  local ok, got = pcall(f, ...)
  expect(not ok and tostring(got):find(message, 1, true),
         "wanted '" .. message .. "', got " .. tostring(got))
end

-- ---- making ----

same(flin.tensor { { 1, 2, 3 }, { 4, 5, 6 } }, { { 1, 2, 3 }, { 4, 5, 6 } },
     "tensor")
same(flin.zeros(2, 2), { { 0, 0 }, { 0, 0 } }, "zeros of numbers")
same(flin.ones({ 3 }, { dtype = "f64" }), { 1, 1, 1 }, "ones of a table")
same(flin.full({ 1, 2 }, 2.5), { { 2.5, 2.5 } }, "full")
same(flin.arange(3), { 0, 1, 2 }, "arange")
expect(flin.tensor(7):totable() == 7, "a number alone")
expect(flin.zeros(0, 3).count == 0, "no elements")
expect(flin.tensor {}.shape[1] == 0, "an empty table")
refuses("a table of 1 entries where its neighbours have 2", flin.tensor,
        { { 1, 2 }, { 3 } })
refuses("element 2 is a string", flin.tensor, { 1, "2" })
refuses("element 2 is a table", flin.tensor, { 1, { 2 } })
refuses("a size is a whole number from 0, not -1", flin.zeros, 2, -1)
refuses("a size is a whole number from 0, not 1.5", flin.zeros, { 1.5 })
refuses("a table of sizes is wanted, not a string", flin.zeros, "x")
refuses("too large", flin.zeros, 1 << 20, 1 << 20, 1 << 20)
refuses("too large", flin.zeros, 0, 1 << 40, 1 << 40)
refuses("unknown dtype int8", flin.zeros, 2, { dtype = "int8" })
refuses("option 'typ' is not known", flin.zeros, 2, { typ = "f32" })
refuses("9 sizes; at most 8", flin.zeros, { 1, 1, 1, 1, 1, 1, 1, 1, 1 })

-- ---- draws ----

local a, b = flin.randn(1000, { seed = 3 }), flin.randn(1000, { seed = 3 })
expect((a - b):maxabs() == 0, "a seed gives the same numbers")
expect((a - flin.randn(1000, { seed = 4 })):maxabs() > 1, "another does not")
expect((flin.randn(9) - flin.randn(9)):maxabs() > 0, "draws go on")
local u = flin.rand(10000, { seed = 1, dtype = "f64" })
expect(u:min() >= 0 and u:max() < 1, "rand is in [0, 1)")
expect(math.abs(u:mean() - 0.5) < 0.02, "rand's mean")  -- 5 sigma is 0.014
local n = flin.randn(10000, { seed = 1, dtype = "f64" })
expect(math.abs(n:mean()) < 0.05 and math.abs((n * n):mean() - 1) < 0.08,
       "randn's moments")                               -- 5 sigma each

-- ---- indexing ----

local t = flin.tensor { { 1, 2, 3 }, { 4, 5, 6 } }
expect(t[{ 2, 3 }] == 6 and t[2][3] == 6, "reading")
t[{ 1, 2 }] = 20
t[2][1] = 40
same(t, { { 1, 20, 3 }, { 40, 5, 6 } }, "writing, through a row too")
expect(#t == 2 and t.rank == 2 and t.count == 6, "sizes")
expect(t.shape[1] == 2 and t.shape[2] == 3 and t.dtype == "float32", "fields")
refuses("index 3 in place 1; the tensor has shape [2, 3]", function ()
  return t[{ 3, 1 }]
end)
refuses("index 0; the tensor has shape [2, 3]", function () return t[0] end)
refuses("1 indices for a tensor of shape [2, 3]", function ()
  return t[{ 1 }]
end)
refuses("no field or method 'foo'", function () return t.foo end)
refuses("holds numbers, not a string", function () t[{ 1, 1 }] = "1" end)
refuses("write one number by", function () t.x = 1 end)

-- ---- views ----

t = flin.tensor { { 1, 2, 3 }, { 4, 5, 6 } }
same(t:transpose(1, 2), { { 1, 4 }, { 2, 5 }, { 3, 6 } }, "transpose")
same(t:narrow(2, 2, 2), { { 2, 3 }, { 5, 6 } }, "narrow")
same(t:transpose(1, 2):narrow(1, 2, 1), { { 2, 5 } }, "a view of a view")
same(t:transpose(1, 2):reshape(2, 3), { { 1, 4, 2 }, { 5, 3, 6 } },
     "reshape copies where it must")
same(t:reshape(3, -1), { { 1, 2 }, { 3, 4 }, { 5, 6 } }, "reshape -1")
t:narrow(2, 1, 1):fill(9)
same(t, { { 9, 2, 3 }, { 9, 5, 6 } }, "fill goes through a view")
t:transpose(1, 2):narrow(1, 2, 2):copy(flin.zeros(2, 2))
same(t, { { 9, 0, 0 }, { 9, 0, 0 } }, "copy goes through a view")
local c = t:clone()
c[{ 1, 1 }] = 1
expect(t[{ 1, 1 }] == 9, "clone is apart")
refuses("entries 2 to 4 of axis 2 in shape [2, 3]", t.narrow, t, 2, 2, 3)
refuses("axis 3 of a tensor of shape [2, 3]", t.narrow, t, 3, 1, 1)
refuses("6 elements do not fill that shape", t.reshape, t, 4, 2)
refuses("6 elements do not fill that shape", t.reshape, t, 4, -1)
refuses("shape [2, 3] into shape [3, 2]", t.copy, t:transpose(1, 2), t)

-- ---- arithmetic ----

t = flin.tensor({ 1, -2, 3 }, { dtype = "float64" })
same(t + 1, { 2, -1, 4 }, "plus a number")
same(2 - t, { 1, 4, -1 }, "a number minus")
same(t * t, { 1, 4, 9 }, "times")
same(-t / 2, { -0.5, 1, -1.5 }, "unary minus, division")
expect(t:sum() == 2 and t:max() == 3 and t:min() == -2 and t:maxabs() == 3,
       "reductions")
local nan = flin.tensor { 1, 0 / 0, 3 }
expect(nan:max() ~= nan:max() and nan:maxabs() ~= nan:maxabs()
       and nan:sum() ~= nan:sum(), "NaN wins")
same(t:map(function (x) return x < 0 and 0 or x end), { 1, 0, 3 }, "map")
refuses("a has shape [3], but b [2]", function ()
  return t + flin.zeros(2)
end)
refuses("a tensor and a string", function () return t + "x" end)
refuses("gave a nil", t.map, t, function () end)

-- ---- dtypes ----

local pi = flin.tensor({ 3.14159265358979 }, { dtype = "float64" })
expect(pi:to("float32")[1] == 3.1415927410125732, "float32 rounds")
expect(pi:to("bfloat16")[1] == 3.140625, "bfloat16 rounds")
expect(pi:to("float16")[1] == 3.140625, "float16 rounds")
expect(pi:to("bf16").dtype == "bfloat16", "short names")
same(flin.tensor({ 65504, 65520, 1e-8 }, { dtype = "fp16" }),
     { 65504, 1 / 0, 0 }, "float16's ends")
expect(tostring(flin.tensor({ { 1, 2 } })) ==
       "tensor [1, 2] float32\n           1          2", "as text")

count.finish()
