-- Gates of any strength: resets of -1e3 to -inf, alone and mixed with such as
-- keep all, some or hardly anything; decays that are exactly zero; masks whose
-- cumulative sum ends tokens before their own. Forward and gradients, beside
-- the float64 step.
local flin = require "flin"
local count = require "support.count"
local expect <const> = count.expect
local exp, dot, outer = flin.exp, flin.dot, flin.outer
local where, eq = flin.where, flin.eq
local inf <const> = math.huge

-- bfloat16: what is drawn is rounded before either computes.
local LIMIT <const> = { float32 = { y = 1e-5, grad = 1e-4 },
                        bfloat16 = { y = 4e-3, grad = 8e-3 } }
-- What some gradients are sums of is a thousand times what they come to.
local SUM <const> = 1e-6

-- Of the n-th gate, drawn as e.
local kinds = {
  { "-1e3",  function (n, e) return n % 7 == 3 and -1e3 or e end },
  { "-1e4",  function (n, e) return n % 5 == 3 and -1e4 or e end },
  { "-1e6",  function (n, e) return n % 11 == 3 and -1e6 or e end },
  { "-1e9",  function (n, e) return n % 3 == 1 and -1e9 or e end },
  { "-inf",  function (n, e) return n % 9 == 3 and -inf or e end },
  { "a wall of -50", function (n, e) return n % 64 < 32 and -50 or e end },
  { "mixed", function (n, e)
    return ({ [2] = -inf, [5] = -1e9, [7] = -1e3, [9] = -60, [12] = -104,
              [13] = -1e5 })[n % 19] or e
  end },
  { "nothing else", function () return -1e9 end },
}

-- A gate that a state keeps may be -inf.
local function finite(x)
  return x:to "float64":map(function (e) return math.max(e, -3e38) end)
end

-- How far off, beside the truth; what is nothing beside all that was summed,
-- `size`, is none.
local function distance(a, b, size)
  local off, b = finite(a) - finite(b), finite(b)
  local d, n = (off * off):sum()^0.5, (b * b):sum()^0.5
  if d <= SUM * (size or 0) then return 0 end
  return d / math.max(n, 1e-30)
end

local function total(t) return t:map(math.abs):sum() end

-- The strongest gate that leaves anything, where a constant takes a tenth of
-- it: what is rounded counts as often in that constant's gradient.
local function strongest(v, call)
  local most = 1
  for _, input in ipairs(v.inputs) do
    if input.domain == "log_decay" then
      call[input.name]:to "float64":map(function (e)
        most = e >= -1e3 and math.max(most, -e) or most
        return e
      end)
    end
  end
  return most
end

-- An input's n-th entries, in any number of calls.
local function changed(x, fn)
  local n = 0
  return x:map(function (e) n = n + 1 return fn(n, e) end)
end

local function check(what, v, call, dtype)
  local limit = LIMIT[dtype]
  local y, state = v:forward(call)
  local want, want_state = v:reference(call)
  expect(distance(y, want) <= limit.y, "%s: y is off by %.1e", what,
         distance(y, want))
  for name, s in pairs(state) do
    expect(distance(s, want_state[name], 1e-3) <= 2 * limit.y,
           "%s: state %s is off by %.1e", what, name,
           distance(s, want_state[name]))
  end
  call.dy = flin.randn(want.shape, { seed = 2 }):to(dtype)
  local grad, right = v:backward(call), v:reference_backward(call)
  local size = total(call.dy)
  local most = strongest(v, call)
  for _, input in ipairs(v.inputs) do
    local d = distance(grad[input.name], right[input.name],
                       input.axes:find "t" and size or size * most)
    expect(d <= limit.grad, "%s: d_%s is off by %.1e", what, input.name, d)
  end
end

for name, v in pairs(flin.stdlib) do
  for i, kind in ipairs(kinds) do
    local dtype = i % 4 == 3 and "bfloat16" or "float32"
    local call = v:random { B = 1, T = 100 + 10 * i, H = 2, K = 16, V = 16,
                            seed = i, dtype = dtype }
    local gated = false
    for _, input in ipairs(v.inputs) do
      if input.domain == "log_decay" then
        gated = true
        call[input.name] = changed(call[input.name], kind[2])
      end
    end
    call.chunk = ({ 16, 32, 64, 128 })[i % 4 + 1]
    if gated then
      check(("%s, gates %s"):format(name, kind[1]), v, call, dtype)
    end
  end
end

-- Gates that a step makes of what is no gate itself.
for _, row in ipairs {
  { "mlstm", "f", -1e9 }, { "mlstm", "f", -inf }, { "mlstm", "f", -200 },
  { "mlstm", "i", -1e9 }, { "mlstm", "i", -inf },
  { "mamba2", "dt", 1e9 }, { "mamba2", "dt", 1e4 },
} do
  local v = flin.stdlib[row[1]]
  local call = v:random { B = 1, T = 150, H = 2, K = 16, V = 16 }
  call[row[2]] = changed(call[row[2]], function (n, e)
    return n % 7 == 3 and row[3] or e
  end)
  check(("%s, %s of %g"):format(table.unpack(row)), v, call, "float32")
end

-- ---- factors that are exactly zero ----

local function decayed(inputs, decay)
  local input = { q = "t k", k = "t k : unit_norm", v = "t v" }
  for name, axes in pairs(inputs) do input[name] = axes end
  return flin.variant {
    name = "decayed", input = input, state = { S = "k v" },
    step = function (x, s)
      local S = decay(x) * s.S + outer(x.k, x.v)
      return { S = S }, dot(x.q, S)
    end,
  }
end

-- 0, 1, next to 0, or as drawn.
local function edges(n, e)
  return n % 9 == 0 and 0 or n % 31 == 0 and 1 or n % 13 == 0 and 1e-6 or e
end

-- Both ways in chunks.
for _, row in ipairs {
  { "where(reset, 0, exp(g))", { g = "t : log_decay", reset = "t : unit" },
    function (x) return where(eq(x.reset, 1), 0, exp(x.g)) end },
  { "1 - eq(reset, 1)", { reset = "t : unit" },
    function (x) return 1 - eq(x.reset, 1) end },
  { "a", { a = "t : unit" }, function (x) return x.a end },
  { "a of any sign", { a = "t", b = "t : unit" },
    function (x) return flin.tanh(x.a) * x.b end },
  { "a of each key", { a = "t k : unit" }, function (x) return x.a end },
  { "a of each key, of any sign", { a = "t k", b = "t k : unit" },
    function (x) return flin.tanh(x.a) * x.b end },
  { "1 - a", { a = "t : unit" }, function (x) return 1 - x.a end },
  { "a exp(g)", { a = "t : unit", g = "t : log_decay" },
    function (x) return x.a * exp(x.g) end },
  { "relu(a)", { a = "t : unit" },
    function (x) return flin.relu(x.a - 0.3) end },
} do
  local v = decayed(row[2], row[3])
  local sizes = { K = 16, V = 16, chunk = 32 }
  expect(v.form:find "runs in chunks", "%s: %s", row[1], v.form)
  for _, T in ipairs { 1, 64, 150 } do
    local call = v:random { B = 2, T = T, H = 2, K = 16, V = 16, seed = T }
    for _, input in ipairs(v.inputs) do
      if input.domain == "unit" then
        call[input.name] = changed(call[input.name], edges)
      end
    end
    check(("decay %s, %d tokens"):format(row[1], T), v, call, "float32")
  end
  sizes.backward = true
  local text = tostring(v:plan(sizes))
  expect(not text:find "token by token", "decay %s: the way back: %s", row[1],
         text:sub(1, 300))
end

-- ---- gates that constants and other gates scale ----

for _, row in ipairs {
  { "s * g", { g = "t : log_decay", s = ": unit" },
    function (x) return x.s * x.g end },
  { "s * g of each key", { g = "t k : log_decay", s = "k : unit" },
    function (x) return x.s * x.g end },
  { "sum(w * g)", { g = "t k : log_decay", w = "k : unit" },
    function (x) return dot(x.w, x.g) end },
  { "g / (s + 1)", { g = "t : log_decay", s = ": unit" },
    function (x) return x.g / (x.s + 1) end },
  { "-g * g2", { g = "t : log_decay", g2 = "t k : log_decay" },
    function (x) return -x.g * x.g2 end },
  { "-g^2 s", { g = "t : log_decay", s = ": unit" },
    function (x) return -x.g ^ 2 * x.s end },
  { "g - softplus(b)", { g = "t : log_decay", b = "t" },
    function (x) return x.g - flin.softplus(x.b) end },
  { "-exp(A) softplus(b - g)", { g = "t : log_decay", A = "", b = "" },
    function (x) return -exp(x.A) * flin.softplus(x.b - x.g) end },
  { "max(s * g, -5)", { g = "t : log_decay", s = ": unit" },
    function (x) return flin.max(x.s * x.g, -5) end },
  { "where(reset, s * g, g)",
    { g = "t : log_decay", s = ": unit", reset = "t : unit" },
    function (x) return where(eq(x.reset, 1), x.s * x.g, x.g) end },
} do
  local v = decayed(row[2], function (x) return exp(row[3](x)) end)
  for i, kind in ipairs(kinds) do
    local call = v:random { B = 1, T = 90, H = 2, K = 16, V = 16, seed = i }
    for _, input in ipairs(v.inputs) do
      if input.domain == "log_decay" then
        call[input.name] = changed(call[input.name], kind[2])
      end
    end
    call.chunk = ({ 16, 32, 64, 128 })[i % 4 + 1]
    check(("decay exp(%s), gates %s"):format(row[1], kind[1]), v, call,
          "float32")
  end
end

-- ---- cumulative sums that end tokens before their own ----

for shift = 1, 4 do
  for _, from in ipairs { shift, shift + 2 } do
    local v = flin.variant { name = "shifted", mask = function (i, j, p)
      if i - j < from then return 0 end
      return exp(p.g_cumsum[i - shift] - p.g_cumsum[j])
    end }
    for _, strong in ipairs { -100, -1e3, -1e9, -inf } do
      local call = v:random { B = 1, T = 100, H = 2, K = 16, V = 16 }
      call.g = changed(call.g, function (n, e)
        return n % 17 == 3 and strong or e
      end)
      check(("g_cumsum[i - %d] from %d on, %g"):format(shift, from, strong),
            v, call, "float32")
    end
  end
end

-- ---- masks: chunks, bands, every pair by itself ----

local function ratio(p, i, j) return exp(p.g_cumsum[i] - p.g_cumsum[j]) end
for name, row in pairs {
  decay = { ratio },
  ["a decay scaled by the head"] = { function (p, i, j)
    return exp(p.s * (p.g_cumsum[i] - p.g_cumsum[j]))
  end, input = { g = "t : log_decay", s = ": unit" } },
  ["half a decay"] = { function (p, i, j)
    return exp((p.g_cumsum[i] - p.g_cumsum[j]) * 0.5)
  end },
  window = { function (p, i, j) return i - j > 5 and 0 or ratio(p, i, j) end },
  ["a window of its own weights"] = { function (p, i, j)
    return i - j > 5 and 0 or ratio(p, i, j) / (i - j + 1)
  end },
  ["a late start"] = { function (p, i, j)
    return i - j < 3 and 0 or ratio(p, i, j)
  end },
  ["every pair"] = { function (p, i, j)
    return ratio(p, i, j) / (i - j + 1)
  end, "quadratic" },
  ["every pair, shifted"] = { function (p, i, j)
    if i - j < 2 then return 0 end
    return flin.tanh(2 * p.g_cumsum[i - 2] - 2 * p.g_cumsum[j]) / (i - j)
  end, "quadratic" },
} do
  local v = flin.variant { name = "mask", mode = row[2],
    input = row.input or { g = "t" },
    mask = function (i, j, p) return i < j and 0 or row[1](p, i, j) end }
  for i, kind in ipairs(kinds) do
    local call = v:random { B = 1, T = 150, H = 2, K = 8, V = 8, seed = i }
    call.g = changed(call.g, function (n, e)
      return kind[2](n, -math.abs(e))
    end)
    check(("mask of %s, gates %s"):format(name, kind[1]), v, call, "float32")
  end
end

-- Each gate is 1e15 times another: their sum keeps none of the small ones.
do
  local v = flin.variant { mask = function (i, j, p)
    return i < j and 0 or ratio(p, i, j)
  end }
  local call = v:random { B = 1, T = 90, H = 1, K = 8, V = 8 }
  call.g = changed(call.g, function (n) return n % 5 == 0 and -1e15 or -0.3 end)
  check("a mask of gates of -0.3 and -1e15", v, call, "float32")
end

-- A logarithm of what may be zero is -inf, and what exp of it loses is nothing.
do
  local v = decayed({ p = "t : positive", u = "t : unit" }, function (x)
    return exp(flin.min(2 * flin.log(x.p), 0) + 2 * flin.log(x.u))
  end)
  local call = v:random { B = 1, T = 70, H = 2, K = 8, V = 8, seed = 5 }
  for _, name in ipairs { "p", "u" } do
    call[name] = changed(call[name], function (n, e)
      return n % 5 == 3 and 0 or e
    end)
  end
  call.chunk = 16
  check("a logarithm of zero", v, call, "float32")
end

-- Gates of -16 leave a ten millionth to the next token: a gradient of a gate is
-- that small beside those of keys, and still as exact as theirs.
for _, name in ipairs { "simple_gla", "gla", "gated_deltanet", "kda" } do
  local v = flin.stdlib[name]
  local x = v:random { T = 70, H = 1, K = 16, V = 16, seed = 4 }
  x.g = (flin.randn(table.unpack(x.g.shape)) * 0.2 + 1) * -16
  x.dy = flin.randn(table.unpack(x.v.shape))
  local wide = { serial = true }
  for input, t in pairs(x) do wide[input] = t:to "float64" end
  x.backend, x.chunk = "cpu", 16
  local d = distance(v:backward(x).g, v:backward(wide).g)
  expect(d <= 5e-6, "%s, gates of -16: d_g is off by %.1e", name, d)
end

count.finish()
