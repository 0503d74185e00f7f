-- States in pools: by index, for decoding, for whole calls and in pieces, for
-- tokens that may be taken back, of variants and layers; and what is refused.
-- On the CPU or, "cuda", a GPU; then names of variants.
local flin = require "flin"
local cuda = ... == "cuda"
local names = { select(2, ...) }
if #names == 0 then
  names = { "gated_deltanet", "mlstm", "retnet", "mamba3", "deltanet_rope" }
end

local count = require "support.count"
local check <const> = count.check

local function put(x)
  return cuda and flin.is_tensor(x) and x:to "cuda" or x
end

local function with(x, more)
  local c = {}
  for k, u in pairs(x) do c[k] = put(u) end
  for k, u in pairs(more or {}) do c[k] = u end
  return c
end

local function whole(rows, dtype)
  return put(flin.tensor(rows, { dtype = dtype or "int64" }))
end

-- Relative to the root of the mean square of what is right.
local function off(x, y)
  x, y = x:to "cpu":to "float64", y:to "cpu":to "float64"
  local e, all = x - y, (y * y):sum()
  return ((e * e):sum() / (all > 0 and all or 1)) ^ 0.5
end

local function close(name, x, y, limit)
  local e = off(x, y)
  check(name, e <= limit, e)
end

local function refused(name, text, f, ...)
  local ok, e = pcall(f, ...)
  check(name, not ok and tostring(e):find(text, 1, true), tostring(e))
end

local function named(x, f)
  local c = {}
  for name, u in pairs(x) do c[name] = f(u, name) end
  return c
end

-- Entries of a pool (from 0), as a call takes states without one, on the CPU.
local function entries(pool, list)
  return named(pool, function (s)
    local shape = { table.unpack(s.shape) }
    shape[1] = #list
    local all, from = flin.zeros(shape), s:to "cpu"
    for i, e in ipairs(list) do
      all:narrow(1, i, 1):copy(from:narrow(1, e + 1, 1))
    end
    return all
  end)
end

-- The named entries are those of `states`, and others what they were.
local function found(name, before, after, list, states, limit)
  local taken = {}
  for i, e in ipairs(list) do taken[e] = i end
  for of, s in pairs(after) do
    local now, worst, kept = s:to "cpu", 0, 0
    local was, right = before[of]:to "cpu", states[of]:to "cpu"
    for e = 0, s.shape[1] - 1 do
      local x, i = now:narrow(1, e + 1, 1), taken[e]
      if i then
        worst = math.max(worst, off(x, right:narrow(1, i, 1)))
      else
        kept = math.max(kept, off(x, was:narrow(1, e + 1, 1)))
      end
    end
    check(("%s: %s of the pool"):format(name, of), worst <= limit, worst)
    check(("%s: %s of others"):format(name, of), kept == 0, kept)
  end
end

local function tokens(v, x, first, n)
  local timed = {}
  for _, i in ipairs(v.inputs) do timed[i.name] = i.axes:find "^t" end
  return named(x, function (u, name)
    return timed[name] and u:narrow(2, first, n) or u
  end)
end

local function sequence(v, x, b)
  local timed = {}
  for _, i in ipairs(v.inputs) do timed[i.name] = i.axes:find "^t" end
  return named(x, function (u, name)
    return timed[name] and u:narrow(1, b, 1) or u
  end)
end

local function pool_of(v, x, P)
  local _, s = v:reference(sequence(v, x, 1))
  return named(s, function (t, name)
    local shape = { table.unpack(t.shape) }
    shape[1] = P
    return put(flin.randn(shape, { seed = #name + 3 }) * 0.1)
  end)
end

-- ---- whole calls and single tokens ----

local function calls(name, v, sizes, limit)
  local B, P = 3, 6
  for _, kind in ipairs { "int64", "int32" } do
    for _, T in ipairs { 1, 37 } do
      local of = ("%s, T = %d, %s"):format(name, T, kind)
      local x = v:random(with({ B = B, T = T, seed = T }, sizes))
      local pool = pool_of(v, x, P)
      local before = named(pool, function (s)
      return s:to "cpu":clone()
    end)
      local list = { 4, 0, 5 }
      local y, s = v:reference(x, { initial_state = entries(pool, list) })
      local call = with(x, { state_index = whole(list, kind) })
      call[T == 1 and "state" or "initial_state"] = pool
      local y1, s1 = v[T == 1 and "step" or "forward"](v, call)
      close(of .. ": y", y1, y, limit)
      for state, t in pairs(s1) do
        check(of .. ": the pool itself", t == pool[state])
      end
      found(of, before, pool, list, s, limit)
    end
  end
end

-- A place in the batch that nobody has.
local function padding(name, v, sizes, limit)
  for _, T in ipairs { 1, 20 } do
    local of = ("%s, T = %d, a place that is nobody's"):format(name, T)
    local x = v:random(with({ B = 3, T = T, seed = 2 }, sizes))
    local pool = pool_of(v, x, 4)
    local before = named(pool, function (s)
      return s:to "cpu":clone()
    end)
    local y, s = v:reference(x, { initial_state = entries(pool, { 3, 0, 1 }) })
    local call = with(x, { state_index = whole { 3, -1, 1 } })
    call[T == 1 and "state" or "initial_state"] = pool
    local y1 = v[T == 1 and "step" or "forward"](v, call)
    for _, b in ipairs { 1, 3 } do
      close(of .. ": y", y1:to "cpu":narrow(1, b, 1), y:narrow(1, b, 1), limit)
    end
    found(of, before, pool, { 3, 1 }, named(s, function (t)
      local two = flin.zeros { 2, table.unpack(t.shape, 2) }
      two:narrow(1, 1, 1):copy(t:narrow(1, 1, 1))
      two:narrow(1, 2, 1):copy(t:narrow(1, 3, 1))
      return two
    end), limit)
  end
end

-- ---- packed sequences in pieces of any length, states from the pool ----

local function pieces(name, v, sizes, limit)
  local length, list, P = { 41, 3, 70 }, { 2, 4, 1 }, 5
  local x = {}
  for b, T in ipairs(length) do
    x[b] = v:random(with({ B = 1, T = T, seed = 20 + b }, sizes))
    for _, i in ipairs(v.inputs) do     -- what all tokens share
      if not i.axes:find "^t" then x[b][i.name] = x[1][i.name] end
    end
  end
  local pool = pool_of(v, x[1], P)
  local before = named(pool, function (s)
      return s:to "cpu":clone()
    end)
  local y, s = {}, named(pool, function (t)
    return flin.zeros { 3, table.unpack(t.shape, 2) }
  end)
  for b in ipairs(x) do
    local one
    y[b], one = v:reference(x[b], { initial_state = entries(pool,
                                                            { list[b] }) })
    for of, t in pairs(s) do t:narrow(1, b, 1):copy(one[of]) end
  end
  local at, draw, parts = { 0, 0, 0 }, 7, { {}, {}, {} }
  local function random(n)              -- from 0 to n
    draw = (draw * 1103515245 + 12345) % 2147483648
    return draw // 65536 % (n + 1)
  end
  while at[1] < length[1] or at[2] < length[2] or at[3] < length[3] do
    local cu, piece, index = { 0 }, {}, {}
    for b = 1, 3 do
      local n = math.min(random(30), length[b] - at[b])
      if n > 0 then
        cu[#cu + 1], index[#index + 1] = cu[#cu] + n, list[b]
        piece[#piece + 1] = { b = b, n = n, first = at[b] + 1 }
      end
    end
    if #piece > 0 then
      local packed = {}
      for _, i in ipairs(v.inputs) do
        local u = x[1][i.name]
        if i.axes:find "^t" then
          u = flin.zeros { 1, cu[#cu], table.unpack(u.shape, 3) }
          for n, p in ipairs(piece) do
            u:narrow(2, cu[n] + 1, p.n):copy(
              x[p.b][i.name]:narrow(2, p.first, p.n))
          end
        end
        packed[i.name] = u
      end
      local y1 = v:forward(with(packed, { cu_seqlens = cu,
        initial_state = pool, state_index = whole(index) }))
      for n, p in ipairs(piece) do
        close(("%s: piece from %d of %d"):format(name, p.first, p.b),
              y1:to "cpu":narrow(2, cu[n] + 1, p.n),
              y[p.b]:narrow(2, p.first, p.n), limit)
        at[p.b] = at[p.b] + p.n
      end
    end
  end
  found(name .. ", in pieces", before, pool, list, s, limit)
end

-- ---- tokens that may be taken back ----

local function verified(name, v, sizes, limit)
  local B, T, P = 2, 4, 12
  local x = v:random(with({ B = B, T = T, seed = 3 }, sizes))
  local pool, list = pool_of(v, x, P), { 7, 2 }
  local start = entries(pool, list)
  local behind = {}
  local y = v:reference(x, { initial_state = start })
  for t = 1, T do
    local _
    _, behind[t] = v:reference(tokens(v, x, 1, t), { initial_state = start })
  end
  local function kept(whose, call)
    local y1, s1 = v:verify(call)
    close(name .. whose .. ": y", y1, y, limit)
    for t = 1, T do
      for of, s in pairs(behind[t]) do
        local here = s1[of]:to "cpu":narrow(2, t, 1)
        local shape = { table.unpack(here.shape) }
        table.remove(shape, 2)
        close(("%s%s: %s behind token %d"):format(name, whose, of, t),
              here:contiguous():reshape(shape), s, limit)
      end
    end
  end
  kept(", verified", with(x, { state = named(start, put) }))
  if cuda then
    local host = named(x, function (t) return t end)
    host.state, host.backend = start, "cuda"
    kept(", verified, tensors of the host", host)
  end
  -- in a pool; token 2 of the first, which goes where it began, token 3 of
  -- the second is not kept
  local before = named(pool, function (s)
      return s:to "cpu":clone()
    end)
  local index = { { 7, 0, 7, 9, 11 }, { 2, 3, 4, -1, 6 } }
  local y1 = v:verify(with(x, { state = pool, state_index = whole(index) }))
  close(name .. ", verified in a pool: y", y1, y, limit)
  local written, states = {}, named(start, function (t)
    return flin.zeros { 7, table.unpack(t.shape, 2) }
  end)
  for b = 1, B do
    for t = 1, T do
      if index[b][t + 1] >= 0 then
        written[#written + 1] = index[b][t + 1]
        for of, s in pairs(states) do
          s:narrow(1, #written, 1):copy(behind[t][of]:narrow(1, b, 1))
        end
      end
    end
  end
  found(name .. ", verified", before, pool, written, states, limit)
  -- two of the first's tokens are accepted, one of the second's: the others
  -- come again, from there
  local rest = tokens(v, x, 3, 1)
  for b, e in ipairs { 7, 4 } do
    local y2 = v:step(with(sequence(v, rest, b), { state = pool,
                                                   state_index = whole { e } }))
    close(name .. ", taken back and again: y", y2, y:narrow(1, b, 1)
          :narrow(2, 3, 1), limit)
  end
end

local layer = flin.layer {
  name = "with_taps",
  input = { x = "t d" },
  weight = { W = "d h k", V = "d h v", a = "d h", c = "h k w", O = "h v d" },
  forward = function (x, w)
    local k = flin.silu(flin.conv(flin.dot(x.x, w.W), w.c))
    local y = flin.stdlib.simple_gla {
      q = k, k = k, v = flin.dot(x.x, w.V),
      g = -flin.softplus(flin.dot(x.x, w.a))
    }
    return flin.dot(flin.rms_norm(y, "v"), w.O)
  end
}
local all = {}
for _, name in ipairs(names) do
  all[#all + 1] = { name, flin.stdlib[name], { H = 2, size = 8 }, 2e-5 }
end
all[#all + 1] = { "a layer", layer,
                  { d = 6, h = 2, k = 4, v = 8, w = 4 }, 1e-4 }
-- Two parts have one state.
all[#all + 1] = { "the token before, twice", flin.layer {
  name = "twice",
  input = { x = "t d" },
  weight = { a = "d", b = "d", V = "d h v", W = "d h v" },
  forward = function (x, w)
    local before = flin.prev(x.x)
    return flin.dot(x.x + w.a * before, w.V)
         + flin.dot(x.x * before * w.b, w.W)
  end
}, { d = 6, h = 2, v = 8 }, 1e-4 }
for _, one in ipairs(all) do
  calls(table.unpack(one))
  padding(table.unpack(one))
  pieces(table.unpack(one))
  verified(table.unpack(one))
end

-- ---- what is refused ----

local v = flin.stdlib.simple_gla
local x = named(v:random { B = 2, T = 1, H = 2, size = 8 }, put)
local pool = { S = put(flin.zeros(4, 2, 8, 8)) }

local function step(index, more)
  local call = with(x, { state = pool, state_index = index })
  for name, u in pairs(more or {}) do call[name] = u end
  return v:step(call)
end

refused("shape", "state_index has shape [3], but [2] is wanted", step,
        whole { 0, 1, 2 })
refused("dtype", "state_index is float32", step, put(flin.zeros(2)))
refused("no pool", "there is no pool", step, whole { 0, 1 },
        { state = {} })
refused("validation", "validate does not look into pools", step,
        whole { 0, 1 }, { validate = true })
refused("gradients", "gradients take states side by side", v.backward, v,
        with(x, { initial_state = pool, state_index = whole { 0, 1 },
                  dy = put(flin.zeros(2, 1, 2, 8)) }))
refused("verify, shape", "state_index has shape [2], but [2, 2] is wanted",
        v.verify, v, with(x, { state = pool, state_index = whole { 0, 1 } }))
if not cuda then
  refused("behind the end", "state_index holds 4 for sequence 1 (from 0), but "
          .. "S has 4 states", step, whole { 0, 4 })
  refused("below -1", "state_index holds -2", step, whole { -2, 0 })
  refused("twice", "state_index holds 3 for sequence 0 and for sequence 1",
          step, whole { 3, 3 })
end
count.finish()
