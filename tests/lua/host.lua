-- flin.host: matrix products against plain sums, gradients against central
-- differences.
local flin = require "flin"
local host = flin.host

local count = require "support.count"
local expect <const> = count.expect

local function refused(what, pattern, f)
  local ok, message = pcall(f)
  expect(not ok and tostring(message):find(pattern, 1, true),
         "%s: wanted an error with '%s', got %s", what, pattern, message)
end

local seed = 0
local function draw(...)
  seed = seed + 1
  return flin.randn({ ... }, { seed = seed })
end

local function near(a, b, tolerance)
  return (a - b):maxabs() <= tolerance * (1 + b:maxabs())
end

-- ---- products ----

-- float32 sums of k terms, and the double sums they are compared with
local TOLERANCE <const> = 1e-5
for _, size in ipairs { { 1, 1, 1 }, { 3, 5, 7 }, { 17, 300, 33 },
                        { 64, 513, 130 }, { 2, 0, 3 } } do
  local m, k, n = table.unpack(size)
  local a, b = draw(m, k), draw(k, n)
  local right = a:to "float64":matmul(b)
  local name = ("%d x %d x %d"):format(m, k, n)
  local at, bt = a:transpose(1, 2):clone(), b:transpose(1, 2):clone()
  expect(near(host.matmul(a, b), right, TOLERANCE), "product %s", name)
  expect(near(host.matmul(at, b, { transpose = "a" }), right, TOLERANCE),
         "product, a transposed %s", name)
  expect(near(host.matmul(a, bt, { transpose = "b" }), right, TOLERANCE),
         "product, b transposed %s", name)
  expect(near(host.matmul(at, bt, { transpose = "ab" }), right, TOLERANCE),
         "product, both transposed %s", name)
  expect(near(host.matmul(at:transpose(1, 2), b:to "float64"), right,
              TOLERANCE), "product of views and doubles %s", name)
  local into = draw(m, n)
  local sum = right + into
  host.matmul(a, b, { into = into, add = true })
  expect(near(into, sum, TOLERANCE), "product added %s", name)
  host.matmul(a, b, { into = into })
  expect(near(into, right, TOLERANCE), "product into %s", name)
end

-- What is written may be an operand, or share memory with one.
for _, turn in ipairs { "", "a", "b" } do
  local a, b = draw(40, 40), draw(40, 40)
  local want = host.matmul(a, b, { transpose = turn })
  local first, second = a:clone(), b:clone()
  host.matmul(first, b, { transpose = turn, into = first })
  host.matmul(a, second, { transpose = turn, into = second })
  expect(near(first, want, 0) and near(second, want, 0),
         "product into an operand, transposed '%s'", turn)
end
do
  local x = draw(9, 4)
  local whole = x:clone()
  host.add(whole:narrow(1, 2, 8), whole:narrow(1, 1, 8))
  expect(near(whole:narrow(1, 2, 8), x:narrow(1, 1, 8) + x:narrow(1, 2, 8), 0),
         "add of rows that overlap")
  local table_ = x:clone()
  host.put(table_, flin.tensor { 2, 3, 4 }, table_:narrow(1, 1, 3))
  expect(near(table_[4], x[3] + x[4], 0), "put of the table's own rows")
end
expect(host.matmul(draw(2, 3, 4), draw(4, 5)).shape[2] == 3,
       "leading axes stay")

-- ---- gradients ----

local function loss_of(y, dy) return (y * dy):sum() end

-- float32 functions, differences over 2e-2: about 1e-3
local function check_gradient(what, f, x, dy, dx)
  local worst, step = 0, 1e-2
  for i = 1, #x do
    local keep = x[i]
    x[i] = keep + step
    local up = loss_of(f(x), dy)
    x[i] = keep - step
    local down = loss_of(f(x), dy)
    x[i] = keep
    worst = math.max(worst, math.abs((up - down) / (2 * step) - dx[i]))
  end
  expect(worst < 2e-3, "%s: gradient off by %g", what, worst)
end

for _, f in ipairs { "sigmoid", "silu", "softplus", "logsigmoid", "tanh",
                     "exp" } do
  local x, dy = draw(8), draw(8)
  check_gradient(f, function (z) return host.apply(f, z) end, x, dy,
                 host.apply_grad(f, x, dy))
end
local ramp = host.apply("relu", flin.tensor { -1, 2 })
expect(ramp[1] == 0 and ramp[2] == 2, "relu")
expect(host.apply("logsigmoid", flin.tensor { -100 })[1] == -100
       and host.apply("softplus", flin.tensor { 100 })[1] == 100,
       "softplus and logsigmoid far out")

for _, kind in ipairs { "rms", "l2" } do
  local x, dy = draw(6), draw(6)
  check_gradient(kind, function (z) return host.norm(kind, z) end, x, dy,
                 host.norm_grad(kind, x, dy))
end
local rms = host.norm("rms", draw(3, 50))
expect(math.abs((rms * rms):mean() - 1) < 1e-4, "rms has mean square 1")

local logits, target = draw(3, 5), flin.tensor { 2, 5, 1 }
local loss, grad = host.cross_entropy(logits, target)
local plain = 0
for i, t in ipairs(target:totable()) do
  plain = plain + (logits[i]:reshape(1, 5):logsumexp()[1] - logits[i][t]) / 3
end
expect(math.abs(loss - plain) < 1e-6, "cross entropy %g, not %g", loss, plain)
local flat = logits:reshape(15)
for i = 1, 15 do
  local keep = flat[i]
  flat[i] = keep + 1e-2
  local up = host.cross_entropy(logits, target)
  flat[i] = keep - 1e-2
  local down = host.cross_entropy(logits, target)
  flat[i] = keep
  expect(math.abs((up - down) / 2e-2 - grad:reshape(15)[i]) < 1e-4,
         "cross entropy: gradient %d", i)
end

-- ---- rows ----

local tab, index = draw(4, 3), flin.tensor { { 1, 3 }, { 3, 4 } }
local rows = host.take(tab, index)
expect(rows[{ 1, 2, 3 }] == tab[{ 3, 3 }] and rows[{ 2, 2, 1 }]
       == tab[{ 4, 1 }], "take")
local put = flin.zeros(4, 3)
host.put(put, index, rows)
expect(near(put[3], tab[3] * 2, 1e-6) and put[2]:maxabs() == 0, "put adds up")
expect(near(host.sum_rows(rows), tab[1] + tab[3] * 2 + tab[4], 1e-6),
       "sum_rows")
local y = host.add(flin.ones(2, 3), flin.tensor { 1, 2, 3 }, 2)
expect(y[{ 2, 3 }] == 7, "add of one row")

-- ---- Adam: its first step is the rate, whatever the gradient ----

local p, m, v = flin.tensor { 1, 1 }, flin.zeros(2), flin.zeros(2)
host.adam(p, flin.tensor { 5, -0.01 }, m, v, { step = 1, rate = 0.1 })
expect(math.abs(p[1] - 0.9) < 1e-5 and math.abs(p[2] - 1.1) < 1e-5, "adam")

refused("product", "have no axis in common", function ()
  host.matmul(draw(2, 3), draw(4, 5))
end)
refused("adam", "share memory", function ()
  host.adam(p, p, m, m)
end)
refused("row", "row 5", function () host.take(tab, flin.tensor { 5 }) end)
refused("in place", "must be float32", function ()
  host.add(flin.zeros({ 2 }, { dtype = "float64" }), flin.zeros(2))
end)
refused("function", "no function 'gelu'", function ()
  host.apply("gelu", tab)
end)

count.finish()
