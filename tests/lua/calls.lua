-- Calls: what v:forward, v:reference and v:step take and return.
local flin = require "flin"

local count = require "support.count"
local with = require "support.with"
local check <const> = count.check

local function flat(t, out)
  out = out or {}
  for _, x in ipairs(t) do
    if type(x) == "table" then flat(x, out) else out[#out + 1] = x end
  end
  return out
end

-- The greatest difference; 0 means the same bits.
local function apart(a, b)
  local x, y = flat(a:totable()), flat(b:totable())
  local most = #x == #y and 0 or math.huge
  for i = 1, math.min(#x, #y) do
    local d = math.abs(x[i] - y[i])
    most = (d > most or d ~= d) and d or most
  end
  return most
end
local function same(name, a, b, tolerance)
  local d = apart(a, b)
  check(name, d <= (tolerance or 0), d)
end

local v = flin.stdlib.gated_deltanet
local B <const>, T <const>, H <const>, K <const>, V <const> = 2, 75, 2, 16, 20

local function inputs(b, t, h, seed)
  local function r(i, ...) return flin.randn(..., { seed = seed + i }) end
  return { q = r(1, { b, t, h, K }), k = r(2, { b, t, h, K }) * 0.2,
           v = r(3, { b, t, h, V }),
           g = r(4, { b, t, h }):map(function (x) return -math.abs(x) end),
           beta = r(5, { b, t, h }):map(function (x) return x % 1 end) }
end

-- Tokens first .. first + n - 1, counted from 1.
local function tokens(x, first, n)
  local c = {}
  for k, u in pairs(x) do c[k] = u:narrow(2, first, n) end
  return c
end

local x = inputs(B, T, H, 1)
local y, state = v:forward(x)

-- ---- what comes back ----

check("y: shape", table.concat(y.shape, " ") == "2 75 2 20",
      table.concat(y.shape, " "))
check("state: shape", table.concat(state.S.shape, " ") == "2 2 16 20",
      table.concat(state.S.shape, " "))
check("y: dtype", y.dtype == "float32", y.dtype)
local low = {}
for k, u in pairs(x) do low[k] = u:to "bfloat16" end
local ylow, slow = v:forward(low)
check("y: dtype of v", ylow.dtype == "bfloat16", ylow.dtype)
check("state: dtype", slow.S.dtype == "float32", slow.S.dtype)
local yref, sref = v:reference(x)
check("reference: dtype", yref.dtype == "float64" and sref.S.dtype == "float64")
same("forward is the reference", y, yref, 1e-5)

-- ---- tokens in parts ----

local zero = { S = flin.zeros(B, H, K, V) }
same("a zero state is none", y, (v:forward(with(x, { initial_state = zero }))))
local y1, s1 = v:forward(tokens(x, 1, 30))
local y2, s2 = v:forward(with(tokens(x, 31, 45), { initial_state = s1 }))
same("two parts: first", y1, y:narrow(2, 1, 30), 1e-5)
same("two parts: second", y2, y:narrow(2, 31, 45), 1e-5)
same("two parts: state", s2.S, state.S, 1e-5)
local kept = s1.S:clone()
v:forward(with(tokens(x, 31, 45), { initial_state = s1 }))
same("the initial state is only read", s1.S, kept)

for _, c in ipairs { 1, 16, 33, 128, 256 } do
  same("chunk " .. c, y, (v:forward(with(x, { chunk = c }))), 1e-5)
end

-- ---- one token ----

local s = { S = s1.S:clone() }
local token = tokens(x, 31, 1)
local y3, s3 = v:step(with(token, { state = s }))
same("step: y", y3, y2:narrow(2, 1, 1), 1e-5)
same("step: the state given stays", s.S, s1.S)
local y4, s4 = v:step(with(token, { state = s, inplace = true }))
same("step in place: y", y4, y3)
same("step in place: the state given is the new one", s.S, s3.S)
check("step in place: the same tensor", s4.S == s.S)
check("step: a first token needs no state", pcall(v.step, v, tokens(x, 1, 1)))

-- ---- layout ----

local strided = {}
for k, u in pairs(x) do                 -- stored heads first
  strided[k] = u:transpose(2, 3):clone():transpose(2, 3)
end
same("strided input", y, (v:forward(strided)))
local other = { S = s1.S:transpose(3, 4):clone():transpose(3, 4) }
same("strided state", y2,
     (v:forward(with(tokens(x, 31, 45), { initial_state = other }))))

-- ---- heads ----

do
  local few = { q = x.q:narrow(3, 1, 1), k = x.k:narrow(3, 2, 1) }
  local function twice(u)
    local a, t = u:totable(), {}
    for b = 1, B do
      t[b] = {}
      for i = 1, T do t[b][i] = { a[b][i][1], a[b][i][1] } end
    end
    return flin.tensor(t)
  end
  same("shared heads", (v:forward(with(x, few))),
       (v:forward(with(x, { q = twice(few.q), k = twice(few.k) }))))
end

-- ---- packed sequences ----

do
  local p, cu = inputs(1, 70, H, 50), { 0, 0, 33, 34, 70, 70 }
  local s0 = flin.randn({ 5, H, K, V }, { seed = 9 })
  local yp, sp = v:forward(with(p, { cu_seqlens = cu,
                                     initial_state = { S = s0 } }))
  for i = 1, 5 do
    local n = cu[i + 1] - cu[i]
    local mine = { S = s0:narrow(1, i, 1) }
    if n == 0 then
      same("packed " .. i .. ": empty", sp.S:narrow(1, i, 1), mine.S)
    else
      local yi, si = v:forward(with(tokens(p, cu[i] + 1, n),
                                    { initial_state = mine }))
      same("packed " .. i .. ": y", yp:narrow(2, cu[i] + 1, n), yi)
      same("packed " .. i .. ": state", sp.S:narrow(1, i, 1), si.S)
    end
  end
  local listed = flin.tensor({ 0, 0, 33, 34, 70, 70 }, { dtype = "float64" })
  same("cu_seqlens as a tensor", yp, (v:forward(with(p, {
       cu_seqlens = listed, initial_state = { S = s0 } }))))
end

-- ---- how it runs changes nothing ----

for _, n in ipairs { 1, 2, 3 } do
  same("threads " .. n, y, (v:forward(with(x, { threads = n }))))
end
flin.threads = 1
same("flin.threads", y, (v:forward(x)))
flin.threads = nil
same("the interpreter", (v:forward(with(x, { backend = "interpreter" }))), yref,
     1e-6)

-- ---- NaN stays where it is ----

do
  local bad = with(x, { v = x.v:clone() })
  bad.v[{ 1, 40, 2, 3 }] = 0 / 0
  local yn = v:forward(with(bad, { chunk = 16 }))
  local yg = v:forward(with(x, { chunk = 16 }))
  same("NaN: other batch entries", yn:narrow(1, 2, 1), yg:narrow(1, 2, 1))
  same("NaN: other heads", yn:narrow(3, 1, 1), yg:narrow(3, 1, 1))
  same("NaN: earlier chunks", yn:narrow(2, 1, 32), yg:narrow(2, 1, 32))
  local seen = yn[{ 1, 60, 2, 3 }]
  check("NaN: it is seen", seen ~= seen, seen)
end

-- ---- constants ----

do
  local m = flin.stdlib.mamba2
  local in_ = { C = x.q, B = x.k, x = x.v, dt = x.beta }
  local numbers = m:forward(with(in_, { A_log = 0.5, D = -1 }))
  local tensors = m:forward(with(in_, { A_log = flin.full({ H }, 0.5),
                                        D = flin.full({ 1 }, -1) }))
  same("numbers as constants", numbers, tensors)
end

-- ---- what a variant says of itself ----

do
  local names, axes = {}, {}
  for i, a in ipairs(v.inputs) do
    names[i], axes[i] = a.name, a.axes .. ":" .. a.domain
  end
  check("inputs: q, k, v first", table.concat(names, " ") == "q k v beta g",
        table.concat(names, " "))
  check("inputs: axes and domains", table.concat(axes, ",") ==
        "t k:normal,t k:unit_norm,t v:normal,t:unit,t:log_decay",
        table.concat(axes, ","))
  check("states", v.states[1].name == "S" and v.states[1].axes == "k v")
  check("name, output", v.name == "gated_deltanet" and v.output == "t v")
  check("text", tostring(v) == [[
gated_deltanet: q [t k], k [t k : unit_norm], v [t v], beta [t : unit], ]] ..
[[g [t : log_decay] -> y [t v]
  1. S [k v] = exp(g)*S + outer(k, dot(-k*(beta*exp(g)), S)) + outer(k, v*beta)
     one decay; corrects what it holds, rank 1; writes rank 1
  runs in chunks]], tostring(v))
  check("note: none for a chunk form", v.note == nil, v.note)
  check("dump", v:dump("TCP", { K = 8, V = 8 }):find "\nchunk 64 " ~= nil)
end

-- ---- token by token where there is no chunk form ----

do
  local tanh = flin.variant {
    name = "recurrent", input = { k = "t k", v = "t v" },
    state = { S = "k v" },
    step = function (u, st)
      local S = flin.tanh(st.S + flin.outer(u.k, u.v))
      return { S = S }, flin.dot(u.k, S)
    end,
  }
  local r = tanh:check { T = 50 }
  check("serial: right", r.worst < 1e-5, r.worst)
  check("serial: says why", (r.note or ""):find "tanh" ~= nil, r.note)
end

-- ---- v:check does not overlook what is wrong ----

do
  local nan = flin.variant {
    input = { k = "t k" },
    step = function (u) return {}, flin.log(u.k) end,
  }
  check("check: NaN", nan:check().y == math.huge, nan:check().y)
  local coarse = flin.variant {
    input = { k = "t k" },
    step = function (u) return {}, flin.sin(1e6 * u.k) end,
  }
  check("check: rounding", coarse:check().worst > 1e-3, coarse:check().worst)
end

count.finish()
