-- Steps that somebody might try, by seed: comparisons and constants as gates,
-- resets of -1e9 and -inf, several results and probes, sizes of 1 beside odd
-- ones, no tokens or one, empty sequences; and calls of them: types mixed,
-- tensors that are turned in memory, states in pools, sequences in two parts.
-- All of it beside the float64 step.
--   flin odd.lua            a sample
--   flin odd.lua 500 100    five hundred, from 100 on; a backend behind it,
--                           and `large`: sizes of models, in bfloat16; then
--                           what they write, by its name
local flin = require "flin"
local count = require "support.count"
local generator = require "support.generator"
local with = require "support.with"
local exp, dot, outer, where = flin.exp, flin.dot, flin.outer, flin.where
local lt, le, eq = flin.lt, flin.le, flin.eq
local inf <const> = math.huge

local programs, first = tonumber(arg[1]) or 60, tonumber(arg[2]) or 1
local backend <const> = arg[3] or "cpu"
local large <const> = arg[4] == "large"

-- ---- steps ----

-- What each gate takes, and what of: x[1], x[2] ... are its own inputs.
local GATES <const> = {
  { "none", {}, function () return 1 end },
  { "a number", {}, function () return 0.9 end },
  { "token", { "t : log_decay" }, function (a) return exp(a) end },
  { "key", { "t k : log_decay" }, function (a) return exp(a) end },
  { "value", { "t v : log_decay" }, function (a) return exp(a) end },
  { "head", { " : log_decay" }, function (a) return exp(a) end },
  { "key of the head", { "k : log_decay" }, function (a) return exp(a) end },
  { "head and token", { "t : log_decay", " : log_decay" },
    function (a, b) return exp(a + b) end },
  { "rate of the head", { "t", "" , "" }, function (a, b, c)
    return exp(-exp(b) * flin.softplus(a + c)) end },
  { "unit", { "t : unit" }, function (a) return a end },
  { "unit key", { "t k : unit" }, function (a) return a end },
  { "less", { "t k : unit" }, function (a) return 1 - a end },
  { "constant", { "" }, function (a) return flin.sigmoid(a) end },
  { "constant key", { "k" }, function (a) return flin.sigmoid(a) end },
  { "constant unit", { "k : unit" }, function (a) return a end },
  { "reset where equal", { "t : log_decay", "t" }, function (a, b)
    return where(eq(flin.floor(b), 1), 0, exp(a)) end },
  { "reset of -1e9", { "t : log_decay", "t" }, function (a, b)
    return exp(where(lt(b, -1), -1e9, a)) end },
  { "reset of -inf", { "t : log_decay", "t" }, function (a, b)
    return exp(where(le(b, -1), -inf, a)) end },
  { "reset of keys", { "t k : log_decay", "t k" }, function (a, b)
    return exp(where(lt(b, -1), -1e9, a)) end },
  { "comparison", { "t" }, function (a) return lt(-1, a) end },
  { "comparison of keys", { "t k" }, function (a) return le(-1, a) end },
  { "comparison with the head's", { "t", "" },
    function (a, b) return lt(b - 1, a) end },
  { "comparison and gate", { "t k : log_decay", "t" },
    function (a, b) return lt(-1, b) * exp(a) end },
  { "sign", { "t : log_decay", "t" },
    function (a, b) return where(lt(b, 0), -1, 1) * exp(a) end },
  { "least", { "t : log_decay", " : log_decay" },
    function (a, b) return exp(flin.max(a, b)) end },
  { "penalty", { "t : log_decay", "t" },
    function (a, b) return exp(a - 1e9 * lt(b, -1)) end },
  { "mean of keys", { "t k" },
    function (a) return flin.sigmoid(flin.mean(a, "k")) end },
  { "square", { "t k : unit" }, function (a) return a * a end },
  { "detached", { "t k : unit", "t : log_decay" },
    function (a, b) return a * flin.detach(exp(b)) end },
  { "power", { "t : unit" }, function (a) return a ^ 2 end },
  { "tanh", { "t k" }, function (a) return flin.tanh(a) end },
  { "cosine", { "t : log_decay", "t : angle" },
    function (a, b) return exp(a) * flin.cos(b) end },
  { "sign's", { "t k : unit", "t" },
    function (a, b) return flin.sign(b) * a end },
  { "clamped", { "t k" },
    function (a) return exp(flin.min(flin.max(a, -5), 0)) end },
  { "remainder", { "t" }, function (a) return exp(-(a % 0.5)) end },
  { "steep", { "t k" }, function (a) return exp(-20 * flin.softplus(a)) end },
  { "root", { "t" }, function (a) return flin.rsqrt(1 + a * a) end },
  { "unit and key", { "t : unit", "t k : log_decay", "k : log_decay" },
    function (a, b, c) return a * exp(b + c) end },
  { "quotient", { "t k : positive" }, function (a) return 1 / (1 + a) end },
  { "logarithm", { "t k : unit" },
    function (a) return exp(flin.log(a + 0.1) - 0.1) end },
}

local WRITES <const> = {
  { "plain", {}, function (S, k, v) return S + outer(k, v) end },
  { "scaled", { "t : unit" },
    function (S, k, v, a) return S + outer(a * k, v) end },
  { "where", { "t" }, function (S, k, v, a)
    return S + where(lt(a, 0), 0, 1) * outer(k, v) end },
  { "equal", { "t" }, function (S, k, v, a)
    return S + outer(eq(flin.floor(a), 0) * k, v) end },
  { "delta", { "t : unit" },
    function (S, k, v, a) return S + outer(a * k, v - dot(k, S)) end },
  { "delta of the head", { " : unit" },
    function (S, k, v, a) return S + outer(a * k, v - dot(k, S)) end },
  { "delta where", { "t", "t : unit" }, function (S, k, v, a, b)
    return S + outer(where(lt(a, 0), 0, b) * k, v - dot(k, S)) end },
  { "delta of keys", { "t k : unit" },
    function (S, k, v, a) return S + outer(a * k, v - dot(k, S)) end },
  { "delta of values", { "t v : unit" },
    function (S, k, v, a) return S + outer(k, a * (v - dot(k, S))) end },
  { "before", {}, function (S, k, v)
    return S + outer(flin.prev(k), v) end },
  { "constant key", { "k" }, function (S, k, v, a)
    return S + outer(0.5 * k + a, v) end },
  { "constant value", { "v" }, function (S, k, v, a)
    return S + outer(k, v + a) end },
  { "constant alone", { "k", "v" }, function (S, k, v, a, b)
    return S + outer(a, v * b) + 0.1 * dot(k, a) end },
  { "positive", {}, function (S, k, v) return S + outer(flin.relu(k), v) end },
  { "two", { "t k : unit_norm", "t v", "t : unit" },
    function (S, k, v, a, b, c)
      S = S + outer(k, v)
      return S + outer(c * a, b - dot(a, S))
    end },
  { "erased and written", { "t : unit", "t : unit" },
    function (S, k, v, a, b)
      return S - outer(a * k, dot(k, S)) + outer(b * k, v)
    end },
  { "low rank", { "t k : unit_norm", "t k : unit_norm" },
    function (S, k, v, a, b)
      return S - 0.5 * outer(a, dot(b, S)) + outer(k, v)
    end },
  { "reflected", { "t : unit" }, function (S, k, v, a)
    return S - 2 * outer(k, dot(k, S)) + outer(a * k, v) end },
  { "along values", { "t v : unit_norm", "t : unit" },
    function (S, k, v, a, b)
      return S - b * outer(dot(S, a), a) + outer(k, v)
    end },
  { "by its length", { "t : unit" }, function (S, k, v, a)
    return S + outer(a / (1 + dot(k, k)) * k, v - dot(k, S)) end },
  { "twice the delta", { "t : unit" },
    function (S, k, v, a) return S + outer(2 * a * k, v - dot(k, S)) end },
  { "delta by numbers", { "t : unit" }, function (S, k, v, a)
    return S + outer(a * k, 0.5 * v - 1.5 * dot(k, S)) end },
  { "squared", {}, function (S, k, v)
    return S + outer(flin.relu(k) ^ 2, v) end },
  { "of few keys", {}, function (S, k, v)
    return S + outer(where(lt(0.1, flin.abs(k)), k, 0), v) end },
  { "ranks by the token", { "t", "t k : unit_norm", "t v" },
    function (S, k, v, a, b, c)
      S = S + outer(lt(0, a) * k, v - dot(k, S))
      return S + outer(lt(1, a) * b, c - dot(b, S))
    end },
  { "one of two", { "t", "t k : unit_norm", "t v" },
    function (S, k, v, a, b, c)
      return where(lt(a, 0), S + outer(k, v) - 0.5 * outer(b, c),
                   S + outer(b, c - dot(b, S)))
    end },
  { "at some tokens", { "t" }, function (S, k, v, a)
    return where(lt(a, 0), S, 0.5 * S + outer(k, v - dot(k, S))) end },
  { "of some keys", { "t k" }, function (S, k, v, a)
    return where(lt(a, 0), S, 0.5 * S + outer(k, v)) end },
  { "what nothing reads", {}, function (S, k, v)
    local _ = flin.prev(flin.sigmoid(k))
    return S + outer(k, v - 0.5 * dot(k, S))
  end },
  { "delta of the token before", {}, function (S, k, v)
    local before = flin.prev(k)
    return S + 0.5 * outer(before, v - dot(before, S))
  end },
  { "ranks", { "t r k : unit_norm", "t r v" }, function (S, k, v, a, b)
    return S + dot(a, b, "r") + outer(k, v) end },
  { "ranks of the token before", { "t r k : unit_norm", "t r v", "t : unit" },
    function (S, k, v, a, b, c)
      local before = dot((1 - c) * flin.prev(a), flin.prev(b), "r")
      return S + dot(a, c * b, "r") + before + outer(k, v)
    end },
  { "a rank of the token before", { "t r k : unit_norm", "t r v" },
    function (S, k, v, a, b)
      return S + dot(a, b, "r") + outer(k, v)
             + outer(flin.at(flin.prev(a), "r", 2), 0.5 * v)
    end },
  { "features of ranks before", { "t r k", "t r v" },
    function (S, k, v, a, b)
      return S + dot(flin.relu(a), b, "r")
             + dot(flin.prev(flin.tanh(a)), flin.prev(b), "r") + outer(k, v)
    end },
}

local READS <const> = {
  { "plain", {}, function (q, S) return dot(q, S) end },
  { "scaled", { "" }, function (q, S, x, a) return a * dot(q, S) end },
  { "gated", { "t v" }, function (q, S, x, a)
    return dot(q, S) * flin.silu(a) end },
  { "skip", { "" }, function (q, S, x, a) return dot(q, S) + a * x.v end },
  { "skip of values", { "v" }, function (q, S, x, a)
    return dot(q, S) + a * x.v end },
  { "bonus", { "k" }, function (q, S, x, a)
    return dot(q, S) + dot(q * a, x.k) * x.v end },
  { "where", { "t" }, function (q, S, x, a)
    return where(lt(a, 0), x.v, dot(q, S)) end },
  { "number", { "v" }, function (q, S, x, a) return dot(dot(q, S), a) end },
  { "mean", {}, function (q, S) return flin.mean(dot(q, S)) end },
  { "comparison", { "v" }, function (q, S, x, a)
    local y = dot(q, S)
    return where(lt(a, x.v), y, -y) end },
  { "norm", {}, function (q, S)
    return flin.rms_norm(dot(q, S), "v") end },
  { "constant query", { "k" }, function (q, S, x, a)
    return dot(q + a, S) end },
  { "before it", {}, function (q, S, x, s0) return dot(q, S) end },
  { "capped", {}, function (q, S) return 2 * flin.tanh(dot(q, S) / 2) end },
  { "of features", {}, function (q, S) return dot(flin.relu(q) ^ 2, S) end },
  { "along values", { "t v" }, function (q, S, x, a)
    return q * dot(S, a) end },
  { "twice", { "t k" }, function (q, S, x, a)
    return dot(q, S) + flin.tanh(dot(a, S)) end },
  { "centred", {}, function (q, S)
    return flin.layer_norm(dot(q, S), "v") end },
  { "beside the token before", {}, function (q, S, x)
    return dot(q, S) + 0.5 * flin.prev(x.v) end },
}

-- What is kept beside S: states, inputs of their own, and how S and they go on.
local BESIDE <const> = {
  { "momentum", { M = "k v" }, { " : unit", "t : unit" },
    function (S, s, x, a, b)
      local M = a * s.M + outer(b * x.k, x.v - dot(x.k, s.S))
      return S + M, { M = M }
    end },
  { "an imaginary part", { I = "k v" }, { "t : unit", "t : angle" },
    function (S, s, x, a, b)
      local c, d = a * flin.cos(b), a * flin.sin(b)
      return S - d * s.I, { I = d * s.S + c * s.I }
    end },
  { "the largest so far", { m = "", z = "" }, {},
    function (S, s, x)
      local u = flin.sum(x.k)
      local m = flin.max(s.m, u)
      local kept, new = exp(s.m - m), exp(u - m)
      local z = kept * s.z + new
      return kept * S + outer(new / (1 + flin.abs(z)) * x.k, x.v),
             { m = m, z = z }
    end },
  { "the largest keys", { p = "k" }, { "t k : log_decay" },
    function (S, s, x, a)
      local p = flin.max(s.p + a, x.k)
      return S + outer(p, x.v), { p = p }
    end },
  { "errors", { M = "k v" }, { "t : log_decay", "t k" },
    function (S, s, x, a, b)
      local M = exp(a) * s.M + outer(b, x.v - dot(x.k, s.S))
      return S + outer(x.k, dot(x.q, M)), { M = M }
    end },
  { "a gate", { z = "" }, { "t", "t", "" },
    function (S, s, x, a, b, c)
      local u = flin.sigmoid(a)
      local z = u * s.z + (1 - u) * b
      return flin.sigmoid(z + c) * S, { z = z }
    end },
  { "a mean", { met = "", mu = "v" }, {},
    function (S, s, x)
      local met = flin.abs(s.met) + 1
      local mu = s.mu + (x.v - s.mu) / met
      return S - outer(x.k, mu), { met = met, mu = mu }
    end },
  { "keys of two axes", { C = "k l v" }, { "t l", "t l", "t : unit" },
    function (S, s, x, a, b, c)
      local C = c * s.C + outer(outer(x.k, a), x.v)
      return S + outer(x.k, dot(b, dot(x.k, C))), { C = C }
    end },
  { "keys by keys", { R = "k d" }, { "t : unit" },
    function (S, s, x, a)
      local R = a * s.R + outer(x.k, flin.rename(x.k, "k", "d"))
      return S + outer(flin.rename(dot(x.q, R), "d", "k"), x.v), { R = R }
    end },
  { "a sign that is read", { R = "k d" }, {},
    function (S, s, x)
      local k = flin.rename(x.k, "k", "d")
      local R = 0.9 * s.R + 0.1 * outer(x.k, k)
      return flin.tanh(dot(x.q, dot(R, k))) * S, { R = R }
    end },
  { "signs of keys that are read", { R = "k d" }, { "t d : unit_norm" },
    function (S, s, x, a)
      local R = 0.9 * s.R + outer(x.k, a - dot(x.k, s.R))
      return flin.tanh(dot(R, a)) * S, { R = R }
    end },
  { "keys that are corrected", { R = "k d" }, { "t : unit" },
    function (S, s, x, a)
      local k = flin.rename(x.k, "k", "d")
      local R = s.R + outer(a * x.k, k - dot(x.k, s.R))
      local to = flin.l2norm(flin.rename(dot(x.k, R), "d", "k"))
      return S + outer(to, x.v - dot(to, S)), { R = R }
    end },
  { "a full block", { M = "k v" }, { "t", "t", "t" },
    function (S, s, x, a, b, c)
      a, b, c = flin.tanh(a) / 2, flin.tanh(b) / 2, flin.tanh(c) / 2
      return S + a * s.M, { M = b * s.S + c * s.M - outer(x.q, x.v) }
    end },
  { "what it was at a token", { M = "k v" }, { "t" },
    function (S, s, x, a)
      local M = where(lt(a, -0.5), s.S, s.M)
      return S + 0.1 * M, { M = M }
    end },
  { "its average", { M = "k v" }, { "t : unit" },
    function (S, s, x, a)
      local M = a * s.M + (1 - a) * s.S
      return S - 0.1 * M, { M = M }
    end },
  { "a mean over all tokens", { M = "k v", met = "" }, {},
    function (S, s, x)
      local met = flin.abs(s.met) + 1
      local M = s.M + (outer(x.k, x.v) - s.M) / met
      return S + outer(x.k, dot(x.q, M)), { M = M, met = met }
    end },
}

local function pick(random, list) return list[random(#list)] end

-- Inputs of an ingredient, by new names.
local function own(definition, list)
  local names = {}
  for i, axes in ipairs(list) do
    definition.n = definition.n + 1
    local name = "x" .. definition.n
    definition.input[name] = axes
    names[i] = name
  end
  return function (x)
    local values = {}
    for i, name in ipairs(names) do values[i] = x[name] end
    return table.unpack(values)
  end
end

-- named: its gate, write and read, with a normaliser, in place of random ones.
local function program(random, named)
  local d = { n = 0, input = { q = "t k", k = "t k : unit_norm", v = "t v" },
              state = { S = "k v" } }
  local function choose(list, i)
    for _, row in ipairs(named and list or {}) do
      if row[1] == named[i] then return row end
    end
    return pick(random, list)
  end
  local gate, write, read = choose(GATES, 1), choose(WRITES, 2),
                            choose(READS, 3)
  local g, w, r = own(d, gate[2]), own(d, write[2]), own(d, read[2])
  local before, sums = random(4) == 1, random(4) == 1 or named
  local beside = random(3) == 1 and not named and pick(random, BESIDE)
  local more_of = beside and own(d, beside[3])
  local more, probes = random(4) == 1 and not named,
                       random(3) == 1 and not named
  local title = ("gate %s, write %s, read %s%s%s%s%s%s"):format(gate[1],
    write[1], read[1], beside and ", " .. beside[1] or "",
    before and ", of what was found" or "", sums and ", a normaliser" or "",
    more and ", results" or "", probes and ", probed" or "")
  local of_values = gate[1]:find "value"
  if sums then d.state.n = "k" end
  for name, axes in pairs(beside and beside[2] or {}) do
    d.state[name] = axes
  end
  d.axes = { l = d.state.C and 3, r = write[1]:find "rank" and write[2][2]
                                      and write[2][1]:find " r " and 2 }
  d.name = "odd"
  d.step = function (x, s)
    local decay = gate[3](g(x))
    local S = write[3](decay * s.S, x.k, x.v, w(x))
    local next = {}
    if beside then S, next = beside[4](S, s, x, more_of(x)) end
    next.S = S
    local y = read[3](x.q, before and s.S or S, x, r(x))
    if sums then
      local kept = 0.9
      if not of_values then kept = decay end
      next.n = kept * s.n + x.k
      y = y / flin.max(flin.abs(dot(x.q, next.n)), 1)
    end
    if probes then
      local seen = flin.probe("seen", dot(x.k, s.S))
      y = y + 0 * seen
      y = y + 0.1 * seen
    end
    if more then
      return next, { y = y, e = x.v - dot(x.k, s.S), l = dot(x.q, x.k) }
    end
    return next, y
  end
  return title, d
end

-- ---- calls ----

local TOKENS <const> = large and { 0, 1, 40, 64, 65, 130, 200 }
                       or { 0, 1, 2, 3, 15, 16, 17, 31, 33, 50, 70 }
local SIZES <const> = large and { 32, 48, 64, 64, 80, 96, 128, 128 }
                      or { 1, 2, 3, 4, 5, 8, 16, 17, 24 }
local LIMIT <const> = { y = large and 8e-3 or 2e-5,
                        grad = large and 1.5e-2 or 2e-4, half = 2e-2 }

local function sizes(random)
  local o = { B = random(2), T = pick(random, TOKENS), H = random(2),
              K = pick(random, SIZES), V = pick(random, SIZES),
              chunk = pick(random, { 16, 32, 64 }) }
  if random(4) == 1 then o.HV = 2 * o.H end
  if random(5) == 1 then o.chunk = nil end
  if random(3) == 1 then
    local cu = { 0 }
    for _ = 1, random(4) do
      cu[#cu + 1] = random(2) == 1 and cu[#cu] or random(o.T + 1) - 1
    end
    cu[#cu + 1] = o.T
    table.sort(cu)
    o.B, o.cu_seqlens = 1, cu
  end
  return o
end

local function describe(o)
  local list = {}
  for _, k in ipairs { "B", "T", "H", "HV", "K", "V", "chunk" } do
    if o[k] then list[#list + 1] = k .. " " .. o[k] end
  end
  if o.cu_seqlens then
    list[#list + 1] = "cu " .. table.concat(o.cu_seqlens, ",")
  end
  return table.concat(list, ", ")
end

local function put(x)
  local c = {}
  for k, u in pairs(x) do
    c[k] = backend == "cuda" and flin.is_tensor(u) and u:to "cuda"
        or type(u) == "table" and not flin.is_tensor(u) and k ~= "cu_seqlens"
           and put(u) or u
  end
  return c
end

local function norm(x) return ((x * x):sum()) ^ 0.5 end

-- Relative; of what is nothing beside `floor`, to that.
local function off(x, y, floor)
  x, y = x:to "cpu":to "float64", y:to "cpu":to "float64"
  if #x.shape ~= #y.shape or x.count ~= y.count then return inf end
  if x.count == 0 then return 0 end
  local e = norm(x - y)
  if e ~= e then return inf end
  return e / math.max(norm(y), floor or 0, 1e-12)
end

local function results(y) return flin.is_tensor(y) and { y = y } or y end

local title

-- moves: a function that gives what y is where inputs are rounded, some times;
-- six times the most by which that is off are allowed, too, as rules that
-- compare or divide have no other limit.
local function close(what, x, y, limit, floor, moves)
  local e = off(x, y, floor)
  if e > limit and moves then
    for _, near in ipairs(moves()) do
      limit = math.max(limit, 6 * off(near, y, floor))
    end
  end
  count.expect(e <= limit, "%s: %s is off by %.1e", title, what, e)
end

local function all_close(what, x, y, limit, floor, moves)
  for name, u in pairs(y) do
    close(("%s %s"):format(what, name), x[name], u, limit, floor,
          moves and function () return moves(name) end)
  end
end

local function states_of(v, x, o, random)
  local n = o.cu_seqlens and #o.cu_seqlens - 1 or o.B
  local found, heads = {}, 1
  for _, i in ipairs(v.inputs) do
    local shape = x[i.name].shape
    heads = math.max(heads, i.axes:find "^t" and shape[3] or shape[1])
  end
  for _, s in ipairs(v.states) do
    local shape = { n, heads }
    for axis in s.axes:gmatch "%S+" do
      shape[#shape + 1] = v.axes[axis] or axis == "v" and o.V or o.K
    end
    found[s.name] = flin.randn(shape, { seed = random(1000) })
  end
  return found
end

-- Matrices of tokens in bfloat16, gates and constants in float32.
local function typed(v, x)
  for _, i in ipairs(v.inputs) do
    if i.axes:find "^t .*[kv]" and i.domain:find "norm" then
      x[i.name] = x[i.name]:to "bfloat16"
    end
  end
end

-- What the float64 step gives where each input is rounded to 8 bits, twice.
local function shaken(v, call, adjoints)
  local found = {}
  for seed = 1, 2 do
    local near = with(call)
    for _, i in ipairs(v.inputs) do
      local u = call[i.name]:to "float64"
      near[i.name] = u + u * flin.randn(u.shape, { seed = seed }):to "float64"
                         * 2^-9
    end
    local y, state = v:reference(near)
    local grad = v:reference_backward(with(near, adjoints))
    found[seed] = { result = results(y), state = state, d = grad,
                    initial = grad.initial_state }
  end
  return found
end

-- The same numbers, the axes of tokens and heads exchanged in memory.
local function turned(x)
  if #x.shape < 3 or x.count == 0 then return x end
  local t = x:transpose(2, 3):clone():transpose(2, 3)
  return t
end

local function trial(seed, named)
  local random = generator(seed)
  local text, d = program(random, named)
  local o = sizes(random)
  o.chunk = named and named.chunk or o.chunk
  title = ("%d, %s; %s"):format(seed, text, describe(o))
  d.n = nil
  local v = flin.variant(d)
  local sized = { B = o.B, T = o.T, H = o.H, HV = o.HV, seed = seed,
                  K = o.K, V = o.V }
  for _, i in ipairs(v.inputs) do
    if i.axes:find " d" then sized.D = o.K end
  end
  local x = v:random(sized)
  if large then typed(v, x) end
  local call = with(x, { cu_seqlens = o.cu_seqlens, chunk = o.chunk,
                         backend = backend ~= "cuda" and backend or nil,
                         initial_state = states_of(v, x, o, random) })
  local saves = random(2) == 1
  local y, state, saved = v:forward(put(with(call, { save = saves })))
  local want, left = v:reference(call)

  -- gradients
  local dy, ds = {}, {}
  for name, u in pairs(results(want)) do
    dy[name] = flin.randn(u.shape, { seed = 3 })
  end
  for name, u in pairs(left) do
    ds[name] = flin.randn(u.shape, { seed = 4 })
  end
  local adjoints = { dy = flin.is_tensor(want) and dy.y or dy, dstate = ds }
  local back = with(call, adjoints)
  local given = saves and with({ saved = saved }, adjoints) or back
  local grad, right = v:backward(put(given)), v:reference_backward(back)
  local runs
  local function moves(of)
    return large and function (name)
      runs = runs or shaken(v, call, adjoints)
      return { runs[1][of][name], runs[2][of][name] }
    end
  end
  all_close("result", results(y), results(want), LIMIT.y, 1e-6, moves "result")
  all_close("state", state, left, LIMIT.y, 1e-6, moves "state")
  local floor = 0
  for name, u in pairs(right) do
    if flin.is_tensor(u) and u.count > 0 then
      floor = math.max(floor, norm(u:to "float64"))
    end
  end
  -- A gate's gradient is the difference of two sums over the tokens behind it:
  -- what those round to is off at every token alike, and adds up in a constant.
  local floors = {}
  for _, i in ipairs(v.inputs) do
    floors[i.name] = 1e-2 * floor * (i.axes:find "^t" and 1
                                     or math.max(o.T, 1) ^ 0.5)
  end
  for name, u in pairs(right) do
    if flin.is_tensor(u) then
      all_close("d", { [name] = grad[name] }, { [name] = u }, LIMIT.grad,
                floors[name], moves "d")
    else
      all_close("d_initial", grad[name], u, LIMIT.grad, 1e-2 * floor,
                moves "initial")
    end
  end
  if large then return end

  local pass = random(5)
  if pass == 1 and not o.cu_seqlens and backend ~= "cuda" then
    local t = with(call)
    for name in pairs(x) do t[name] = turned(x[name]) end
    local y1, s1 = v:forward(put(t))
    all_close("turned", results(y1), results(y), 1e-6, 1e-6)
    all_close("turned state", s1, state, 1e-6, 1e-6)
  elseif pass == 2 then
    local kinds = { "float32", "bfloat16", "float16" }
    local t = with(call)
    for name in pairs(x) do t[name] = x[name]:to(pick(random, kinds)) end
    local fine, y1 = pcall(v.forward, v, put(t))
    if fine then
      all_close("mixed", results(y1), results((v:reference(t))), LIMIT.half,
                1e-2)
    else
      count.expect(tostring(y1):find "float" ~= nil, "%s: mixed: %s", title,
                   y1)
    end
  elseif pass == 3 then
    local n, pool, index = 0, {}, {}
    for name, s in pairs(call.initial_state) do
      n = s.shape[1]
      local shape = { table.unpack(s.shape) }
      shape[1] = n + 2
      pool[name] = flin.randn(shape, { seed = 9 })
      for i = 1, n do
        pool[name]:narrow(1, n - i + 2, 1):copy(s:narrow(1, i, 1))
      end
    end
    for i = 1, n do index[i] = n - i + 1 end
    local there, same, left1 = put(pool), v:forward(put(call))
    local y1 = v:forward(with(put(call), { initial_state = there,
      state_index = put { flin.tensor(index, { dtype = "int64" }) }[1] }))
    all_close("pooled", results(y1), results(same), 1e-6, 1e-6)
    for name, s in pairs(left1) do
      for i = 1, n do
        close("pool's " .. name, there[name]:to "cpu":narrow(1, n - i + 2, 1),
              s:to "cpu":narrow(1, i, 1), 1e-6, 1e-6)
      end
    end
  elseif pass == 4 and #v.probes > 0 then
    local r, s1 = v:probe(put(call))
    local p = v:probed()
    all_close("probe", r, (p:reference(call)), LIMIT.y, 1e-6)
    all_close("probe's state", s1, left, LIMIT.y, 1e-6)
  elseif not o.cu_seqlens and o.T > 1 then
    local cut = random(o.T) - 1
    local one, two = with(call), with(call)
    for _, i in ipairs(v.inputs) do
      if i.axes:find "^t" then
        one[i.name] = x[i.name]:narrow(2, 1, cut)
        two[i.name] = x[i.name]:narrow(2, cut + 1, o.T - cut)
      end
    end
    local _, s1 = v:forward(put(one))
    two.initial_state = s1
    local y2, s2 = v:forward(put(two))
    for name, u in pairs(results(want)) do
      close("second part's " .. name, results(y2)[name],
            u:narrow(2, cut + 1, o.T - cut), LIMIT.y, 1e-6)
    end
    all_close("second part's state", s2, left, LIMIT.y, 1e-6)
  end
end

local function try(seed, named)
  local ok, why = pcall(trial, seed, named)
  count.expect(ok, "%s: %s", title, why)
end

for seed = first, first + programs - 1 do
  try(seed, arg[5] and { GATES[seed % #GATES + 1][1], arg[5],
                         READS[seed % #READS + 1][1] })
end
-- Normalised by what cancels: their traces were refused, beside numbers so huge
-- that rounding decides. And a token before that only the call's end has; and
-- sums of half a tile's rows.
local NAMED <const> = { { "constant", "delta of keys", "before it" },
                        { "constant", "positive", "bonus" },
                        { "reset of keys", "what nothing reads", "plain" },
                        { "token", "plain", "mean", chunk = 32 },
                        { "none", "twice the delta", "plain" },
                        { "none", "delta by numbers", "plain" } }
for seed, named in ipairs(arg[2] and first > 1 and {} or NAMED) do
  try(seed, named)
end
count.finish()
