-- Every variant of the standard library against its row of the field's common
-- notation, S_t = D_t S_{t-1} + sum b (a^T S_{t-1}) + sum k v^T, y = q^T S,
-- written out here in plain Lua: other formulas for the same layers.
local flin = require "flin"
local exp, log, abs, max, pi = math.exp, math.log, math.abs, math.max, math.pi
local SIZE <const> = { k = 4, v = 3, m = 4, p = 2, r = 4, n = 2 }
local T <const> = 7

-- ---- vectors ----

local function each(f, ...)
  local lists, out = { ... }, {}
  local n = 1
  for _, l in ipairs(lists) do
    if type(l) == "table" then n = #l end
  end
  for i = 1, n do
    local a, b, c = lists[1], lists[2], lists[3]
    out[i] = f(type(a) == "table" and a[i] or a,
               type(b) == "table" and b[i] or b,
               type(c) == "table" and c[i] or c)
  end
  return out
end
local function mul(a, b) return each(function (x, y) return x * y end, a, b) end
local function add(a, b) return each(function (x, y) return x + y end, a, b) end
local function map(f, a) return each(f, a) end
local function inner(a, b)
  local s = 0
  for i = 1, #a do s = s + a[i] * b[i] end
  return s
end
local function sigmoid(x) return 1 / (1 + exp(-x)) end
local function silu(x) return x * sigmoid(x) end

-- Pairs of u, as complex numbers, times e^(i angle).
local function turn(u, angle)
  local out = { table.unpack(u) }
  for n = 1, #angle do
    local a, b, c, s = u[2*n-1], u[2*n], math.cos(angle[n]), math.sin(angle[n])
    out[2*n-1], out[2*n] = a * c - b * s, a * s + b * c
  end
  return out
end

-- ---- the common recurrence ----

local function zeros() return map(function () return { 0, 0, 0 } end,
                                  { 0, 0, 0, 0 }) end

local function read(q, S)
  local y = { 0, 0, 0 }
  for i = 1, #q do y = add(y, mul(q[i], S[i])) end
  return y
end

-- ab: pairs {a, b}; kv: pairs {k, v}.
local function advance(S, D, ab, kv)
  local new = {}
  for i = 1, SIZE.k do
    local row = mul(type(D) == "table" and D[i] or D, S[i])
    for _, p in ipairs(ab) do row = add(row, mul(p[2][i], read(p[1], S))) end
    for _, p in ipairs(kv) do row = add(row, mul(p[1][i], p[2])) end
    new[i] = row
  end
  return new
end

-- y of T tokens; row(x, t) gives D, ab, kv, q of token t (x: all tokens).
local function run(x, row)
  local S, y = zeros(), {}
  for t = 1, T do
    local D, ab, kv, q = row(x[t], t, x)
    S = advance(S, D, ab, kv)
    y[t] = read(q, S)
  end
  return y
end

local function delta(D, erase, k, v, read_key)
  return D, { { mul(-1, mul(D, read_key)), erase } }, { { k, v } }
end

-- ---- the variants ----

local function sum_form(decay, keys)
  return function (x)
    return run(x, function (u)
      local f = keys or function (a) return a end
      return decay(u), {}, { { map(f, u.k), u.v } }, map(f, u.q)
    end)
  end
end

local function delta_form(decay)
  return function (x)
    return run(x, function (u)
      local bk = mul(u.beta, u.k)
      local D, ab, kv = delta(decay(u), bk, bk, u.v, u.k)
      return D, ab, kv, u.q
    end)
  end
end

local function gate(u) return type(u.g) == "table" and map(exp, u.g)
                              or exp(u.g) end
local function same() return 1 end

-- Two passes over m slots, a softmax between: the sums of all earlier tokens,
-- each with what it wrote and what was forgotten since. mean: over the weights.
local function slots(weight, gate_of, mean)
  return function (x)
    local y = {}
    for t, u in ipairs(x) do
      local p, read_by, all = {}, {}, 0
      for m = 1, SIZE.m do
        local A, C, n, since = mul(0, u.k), mul(0, u.v), 0, 0
        for j = t, 1, -1 do
          local w = weight(x[j])[m] * exp(since)
          A, C, n = add(A, mul(w, x[j].k)), add(C, mul(w, x[j].v)), n + w
          since = since + gate_of(x[j])[m]
        end
        local by = mean and 1 / n or 1
        p[m], read_by[m] = exp(by * inner(A, u.q)), mul(by, C)
        all = all + p[m]
      end
      y[t] = mul(0, u.v)
      for m = 1, SIZE.m do y[t] = add(y[t], mul(p[m] / all, read_by[m])) end
    end
    return y
  end
end

-- Sums over pairs of tokens: features(u)(w) gives those of w's key and u's
-- query; divided by the sum of the weights, or of each channel's.
local function over_pairs(features, by_channel)
  return function (x)
    local y = {}
    for t, u in ipairs(x) do
      local with, sum, all = features(u), mul(0, u.k), 1e-5
      for j = 1, t do
        local k, q = with(x[j])
        sum, all = add(sum, k), all + inner(k, q)
      end
      y[t] = mul(0, u.v)
      for j = 1, t do
        local k, q = with(x[j])
        local w = by_channel and inner(q, each(function (a, b)
          return a / b
        end, k, sum)) or inner(q, k) / all
        y[t] = add(y[t], mul(w, x[j].v))
      end
    end
    return y
  end
end

-- Angles up to and with each token.
local function angles(x, rate)
  local phi, out = map(same, mul(0, rate(x[1]))), {}
  phi = mul(0, phi)
  for t = 1, T do
    phi = add(phi, rate(x[t]))
    out[t] = phi
  end
  return out
end

local function mamba3_angles(x)
  return angles(x, function (u)
    return map(function (a)
      return math.pi * (1 - 2 / (exp(2 * a) + 1)) * u.dt
    end, u.theta)
  end)
end

-- The trapezoidal rule as one write a token, half of it a token late: scales
-- k by lambda dt + (1 - lambda') dt' of the token after, and takes back from
-- y what has not come yet.
local function trapezoid(u, after, dt)
  local ahead = after and (1 - after.lambda) * dt(after) or 0
  return u.lambda * dt(u) + ahead, ahead
end

local function atk(x)
  local A, out = { 0, 0, 0, 0 }, {}
  for t, u in ipairs(x) do
    A = add(mul(exp(u.g_atk), A), mul(u.beta_atk, mul(u.k, u.k)))
    out[t] = map(function (a)
      local r = log(a + 1e-6) - u.center
      return exp(u.strength) ^ (-r / (1 + abs(r)))
    end, A)
  end
  return out
end

local function precond(x)
  local M = atk(x)
  return run(x, function (u, t)
    local w = mul(u.beta, mul(M[t], u.k))
    local D, ab, kv = delta(gate(u), w, w, u.v, u.k)
    return D, ab, kv, u.q
  end)
end

local ROWS <const> = {
  linear = sum_form(same), simple_gla = sum_form(gate), gla = sum_form(gate),
  lightning = sum_form(gate, silu),
  deltanet = delta_form(same), gated_deltanet = delta_form(gate),
  kda = delta_form(gate), precond_gdn = precond, precond_kda = precond,

  retnet = function (x)
    return run(x, function (u, t)
      return exp(u.g), {}, { { turn(u.k, mul(t, u.theta)), u.v } },
             turn(u.q, mul(t, u.theta))
    end)
  end,

  mamba2 = function (x)
    local y = run(x, function (u)
      return exp(-exp(u.A_log) * u.dt), {}, { { mul(u.dt, u.B), u.x } }, u.C
    end)
    for t, u in ipairs(x) do y[t] = add(y[t], mul(u.D, u.x)) end
    return y
  end,

  hgrn2 = function (x)
    return run(x, function (u)
      local k = map(function (g) return 1 - exp(g) end, u.g)
      return map(exp, u.g), {}, { { k, u.v } }, u.q
    end)
  end,

  -- The read before the write, and the bonus beside it.
  rwkv6 = function (x)
    local S, y = zeros(), {}
    for t, u in ipairs(x) do
      y[t] = read(u.r, advance(S, 1, {}, { { mul(u.u, u.k), u.v } }))
      S = advance(S, map(exp, u.w), {}, { { u.k, u.v } })
    end
    return y
  end,

  -- Without the stabiliser, which cancels.
  mlstm = function (x)
    local n, ns = { 0, 0, 0, 0 }, {}
    local function D(u) return sigmoid(u.f) end
    local y = run(x, function (u, t)
      n = add(mul(D(u), n), mul(exp(u.i), u.k))
      ns[t] = max(abs(inner(u.q, n)), 1)
      return D(u), {}, { { mul(exp(u.i), u.k), u.v } }, u.q
    end)
    for t = 1, T do y[t] = mul(1 / ns[t], y[t]) end
    return y
  end,

  gdn2 = function (x)
    return run(x, function (u)
      local D, ab, kv = delta(gate(u), u.k, u.k, mul(u.w, u.v),
                              mul(u.b, u.k))
      return D, ab, kv, u.q
    end)
  end,

  comba = function (x)
    return run(x, function (u)
      local p, bk = mul(sigmoid(u.b), u.k), mul(u.beta, u.k)
      return gate(u), { { mul(-1, p), bk } }, { { bk, u.v } },
             add(u.q, mul(-u.d, p))
    end)
  end,

  -- Without M, which the last two S tell: M = (a S' - S) / beta.
  momentum_deltanet = function (x)
    local older, S, y, a, beta = zeros(), zeros(), {}, 1, 1
    for t, u in ipairs(x) do
      local on = u.beta * exp(u.mu) / beta
      local bk = mul(u.beta * u.eta, u.k)
      local new = advance(S, exp(u.g) + on, { { mul(-1, u.p), bk } },
                          { { bk, u.v } })
      for i = 1, SIZE.k do new[i] = add(new[i], mul(-on * a, older[i])) end
      older, S, a, beta = S, new, exp(u.g), u.beta
      y[t] = read(u.q, S)
    end
    return y
  end,

  -- Gated DeltaNet on twice the tokens, read after every second.
  deltaproduct = function (x)
    local S, y = zeros(), {}
    for t, u in ipairs(x) do
      for j = 1, SIZE.n do
        local bk = mul(u.beta[j], u.k[j])
        S = advance(S, delta(j == 1 and gate(u) or 1, bk, bk, u.v[j], u.k[j]))
      end
      y[t] = read(u.q, S)
    end
    return y
  end,

  rwkv7 = function (x)
    return run(x, function (u)
      return map(exp, u.w), { { mul(-1, u.kappa), mul(u.kappa, u.a) } },
             { { u.k, u.v } }, u.r
    end)
  end,

  mamba3 = function (x)
    local phi, back = mamba3_angles(x), {}
    local y = run(x, function (u, t)
      local k, q = turn(u.B, phi[t]), turn(u.C, phi[t])
      local s, ahead = trapezoid(u, x[t + 1], function (w) return w.dt end)
      back[t] = u.D - ahead * inner(q, k)
      return exp(-exp(u.A_log) * u.dt), {}, { { mul(s, k), u.x } }, q
    end)
    for t, u in ipairs(x) do y[t] = add(y[t], mul(back[t], u.x)) end
    return y
  end,

  mamba3_mimo = function (x)
    local phi = mamba3_angles(x)
    local y = {}
    for t = 1, T do y[t] = mul(x[t].D, x[t].x) end
    for r = 1, SIZE.r do                      -- each read, of all writes
      local back = {}
      local part = run(x, function (u, t)
        local q, kv = turn(u.C[r], phi[t]), {}
        local s, ahead = trapezoid(u, x[t + 1], function (w) return w.dt end)
        back[t] = { 0, 0, 0 }
        for w = 1, SIZE.r do
          local k, v = turn(u.B[w], phi[t]), mul(u.Wx[w], u.x)
          kv[w] = { mul(s, k), v }
          back[t] = add(back[t], mul(-ahead * inner(q, k), v))
        end
        return exp(-exp(u.A_log) * u.dt), {}, kv, q
      end)
      for t, u in ipairs(x) do
        y[t] = add(y[t], mul(u.Wo[r], add(part[t], back[t])))
      end
    end
    return y
  end,

  -- S and A from their sums over all earlier tokens, quadratically.
  precond_mamba3 = function (x)
    local phi = mamba3_angles(x)
    local S, A, y = zeros(), { 0, 0, 0, 0 }, {}
    for t, u in ipairs(x) do
      local alpha = exp(-exp(u.A_log) * u.dt)
      local pairs_ = { { turn(u.B, phi[t]), u.x, u.lambda * u.dt } }
      if t > 1 then
        pairs_[2] = { turn(x[t - 1].B, phi[t - 1]), x[t - 1].x,
                      (1 - u.lambda) * u.dt * alpha }
      end
      A = mul(alpha, A)
      for _, p in ipairs(pairs_) do A = add(A, mul(p[3], mul(p[1], p[1]))) end
      local mean = (A[1] + A[2] + A[3] + A[4]) / 4
      local kv = {}
      for i, p in ipairs(pairs_) do
        kv[i] = { each(function (k, a)
          return p[3] * k / (a / (mean + 1e-6) + 0.03)
        end, p[1], A), p[2] }
      end
      S = advance(S, alpha, {}, kv)
      y[t] = add(read(turn(u.C, phi[t]), S), mul(u.D, u.x))
    end
    return y
  end,

  deltanet_rope = function (x)
    local phi = angles(x, function (u) return u.theta end)
    return run(x, function (u, t)
      local k = turn(u.k, phi[t])
      local D, ab, kv = delta(1, mul(u.beta, k), mul(u.beta, k), u.v, k)
      return D, ab, kv, turn(u.q, phi[t])
    end)
  end,

  trapezoidal_gla = function (x)
    local back = {}
    local y = run(x, function (u, t)
      local s, ahead = trapezoid(u, x[t + 1], same)
      back[t] = -ahead * inner(u.q, u.k)
      return gate(u), {}, { { mul(s, u.k), u.v } }, u.q
    end)
    for t, u in ipairs(x) do y[t] = add(y[t], mul(back[t], u.v)) end
    return y
  end,

  mimo_deltanet = function (x)
    return run(x, function (u)
      local ab, kv = {}, {}
      for r = 1, SIZE.r do
        local bk = mul(u.beta[r], u.k[r])
        ab[r], kv[r] = { mul(-1, u.k[r]), bk }, { bk, u.v[r] }
      end
      return 1, ab, kv, u.q
    end)
  end,

  iplr = function (x)
    return run(x, function (u)
      return 1, { { u.a, u.b } }, { { u.k, u.v } }, u.q
    end)
  end,

  dplr = function (x)
    return run(x, function (u)
      return map(exp, u.gk), { { u.a, u.b } }, { { u.k, u.v } }, u.q
    end)
  end,

  -- Each row of S on its own: from the right come a decay and a reflection.
  gated_oja = function (x)
    local S, y = zeros(), {}
    for t, u in ipairs(x) do
      local f = map(exp, u.gv)
      local fv = mul(f, u.v)
      for i, row in ipairs(S) do
        S[i] = add(mul(f, row), mul(u.beta * (u.k[i] - inner(row, fv)), u.v))
      end
      y[t] = read(u.q, S)
    end
    return y
  end,

  -- Without M, which the last two S tell: M = S - (1 - alpha) S'.
  titans = function (x)
    local older, S, y, alpha = zeros(), zeros(), {}, 0
    for t, u in ipairs(x) do
      local tk = mul(u.theta, u.k)
      local new = advance(S, 1 - u.alpha + u.eta, { { mul(-1, u.k), tk } },
                          { { tk, u.v } })
      for i = 1, SIZE.k do
        new[i] = add(new[i], mul(-u.eta * (1 - alpha), older[i]))
      end
      older, S, alpha = S, new, u.alpha
      y[t] = read(u.q, S)
    end
    return y
  end,

  gsa = slots(function (u)
    return map(function (g) return 1 - exp(g) end, u.g)
  end, function (u) return u.g end),

  abc = slots(function (u) return map(exp, u.s) end, function (u)
    return mul(0, u.s)
  end, true),

  -- By how far the clock has gone between two tokens, without slots' states.
  cyfa = function (x)
    local y, seen, clock = {}, {}, 0
    for t, u in ipairs(x) do
      local reads, weights, c, all = { 0, 0, 0, 0 }, {}, { 0, 0, 0, 0 }, 0
      clock = clock + u.turn
      for _, w in ipairs(seen) do w.kept = w.kept * exp(u.g) end
      seen[t] = { u = u, clock = clock, kept = u.beta }
      for j, w in ipairs(seen) do
        weights[j] = mul(w.kept, turn(u.atom, mul(clock - w.clock, u.rate)))
        reads = add(reads, mul(inner(w.u.k, u.q) / SIZE.k ^ 0.5, weights[j]))
      end
      for r, row in ipairs(u.readout) do
        local e = exp(inner(row, reads))
        c, all = add(c, mul(e, row)), all + e
      end
      y[t] = { 0, 0, 0 }
      for j, w in ipairs(seen) do
        y[t] = add(y[t], mul(inner(c, weights[j]) / all, w.u.v))
      end
    end
    return y
  end,

  -- A softmax over tokens for each channel of the keys.
  lightnet = over_pairs(function (u)
    return function (w)
      return map(exp, w.k), u.q
    end
  end, true),

  rebased = over_pairs(function (u)
    local function features(a)
      local mean = inner(a, map(same, a)) / #a
      local off = map(function (e) return e - mean end, a)
      local size = (inner(off, off) / #a + 1e-5) ^ 0.5
      return map(function (e) return e * e end,
                 add(u.beta, mul(u.gamma, mul(1 / size, off))))
    end
    return function (w)
      return features(w.k), features(u.q)
    end
  end),
}

-- ---- the comparison ----

local DOMAIN <const> = {
  [""] = function (x) return x end,
  normal = function (x) return x end,
  log_decay = function (x) return -log(1 + exp(-x)) end,
  unit = sigmoid,
  positive = function (x) return log(1 + exp(x)) end,
  angle = function (x) return pi * (2 * sigmoid(2 * x) - 1) end,
  unit_norm = function (x) return 0.45 * x end,     -- about; no need for 1
}

-- A tensor of the input for T tokens (or none), and its entries for each.
local function draw(input)
  local shape, timed = {}, false
  for axis in input.axes:gmatch "%a+" do
    timed = timed or axis == "t"
    if axis ~= "t" then shape[#shape + 1] = SIZE[axis] end
  end
  local f = DOMAIN[input.domain or ""]
  local full = timed and { 1, T, 1 } or { 1 }
  table.move(shape, 1, #shape, #full + 1, full)
  local x = flin.randn(full, { dtype = "float64" }):map(f)
  local list, tokens = x:totable(), {}
  for t = 1, T do tokens[t] = timed and list[1][t][1] or list[1] end
  return x, tokens
end

local passed, failed = 0, 0
flin.seed(3)
for name, variant in pairs(flin.stdlib) do
  local inputs, x = {}, {}
  for t = 1, T do x[t] = {} end
  for _, input in ipairs(variant.inputs) do
    local tensor, tokens = draw(input)
    inputs[input.name] = tensor
    for t = 1, T do x[t][input.name] = tokens[t] end
  end
  local worst = 1 / 0
  local row = ROWS[name]
  if row then
    local wanted, got = row(x), variant:reference(inputs):totable()[1]
    worst = 0
    for t = 1, T do
      for i = 1, SIZE.v do
        local off = abs(got[t][1][i] - wanted[t][i])
        worst = off <= worst and worst or off
      end
    end
  end
  -- mlstm's 1e-6 in the divisor is left out above.
  if worst <= (name == "mlstm" and 1e-4 or 1e-10) then
    passed = passed + 1
  else
    failed = failed + 1
    print(row and ("FAIL %s is off by %.1e"):format(name, worst)
          or ("FAIL %s has no row here"):format(name))
  end
end

print(("%d passed, %d failed"):format(passed, failed))
os.exit(failed == 0 and 0 or 1)
