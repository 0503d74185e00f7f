-- v:stages, v:stage: every variant's states behind three parts of a sequence,
-- each part known by its summaries alone; against the float64 step.
local flin = require "flin"
local part = require "support.part"
local count = require "support.count"
local expect = count.expect

-- f(a, b, c) of all numbers of tables that are shaped alike.
local function entrywise(f, a, b, c)
  if type(a) ~= "table" then
    return f(a, b, c)
  end
  local out = {}
  for i = 1, #a do
    out[i] = entrywise(f, a[i], b[i], c[i])
  end
  return out
end

local along = {
  entries = function (m, s, own) return m * s + own end,
  max = function (m, s, own) return math.max(m + s, own) end,
}

-- Rows or matrices: one head's states, whose rows are below one another.
local function row_after(m, rows, own, i)
  local out = {}
  for j = 1, #own do
    out[j] = own[j]
    for k = 1, type(m) == "table" and #m or 1 do
      local of = type(m) == "table" and m[k] * rows[k][j] or m * rows[i][j]
      out[j] = out[j] + of
    end
  end
  return out
end

local function transposed(rows)
  local out = {}
  for j = 1, #rows[1] do
    out[j] = {}
    for i = 1, #rows do
      out[j][i] = rows[i][j]
    end
  end
  return out
end

-- A transition of the columns stands behind them.
local function head_after(M, rows, own)
  if type(rows[1]) == "table" and #M ~= #own then
    return transposed(head_after(M, transposed(rows), transposed(own)))
  end
  local out = {}
  for i = 1, #own do
    out[i] = row_after(M[i], rows, own[i], i)
  end
  return out
end

-- {name = tensor}: the states of a stage behind a part.
local function after(stage, own, M, start)
  local out, S = {}, {}
  for _, name in ipairs(stage.states) do
    S[name] = start[name]:totable()
  end
  for _, name in ipairs(stage.states) do
    local o, m = own[name]:totable(), M[name]:totable()
    if along[stage.carry] then
      out[name] = flin.tensor(entrywise(along[stage.carry], m, S[name], o))
    else
      local to = {}
      for n = 1, #o do
        to[n] = {}
        for h = 1, #o[n] do
          local rows = {}
          for _, other in ipairs(stage.states) do
            table.move(S[other][n][h], 1, #S[other][n][h], #rows + 1, rows)
          end
          to[n][h] = head_after(m[n][h], rows, o[n][h])
        end
      end
      out[name] = flin.tensor(to)
    end
  end
  return out
end

local function off(a, b)
  return (a:to "float64" - b:to "float64"):maxabs() / math.max(1, b:maxabs())
end

local function turned(a)
  return entrywise(function (x) return math.cos(x) end, a, a, a)
end

local SIZES <const> = { B = 2, T = 46, H = 2, K = 4, V = 6 }

local function check(name, v)
  local x = v:random(SIZES)
  local angle = {}
  for _, s in ipairs(v.states) do
    angle[s.name] = s.angle
  end
  local _, state = v:forward(x)
  x.initial_state = state
  local y, whole = v:reference(x)
  local stages, from, last = v:stages(), 1, nil
  for _, n in ipairs { 17, 1, 28 } do
    last = part(v, x, from, n)
    local next_state = {}
    for i, stage in ipairs(stages) do
      local z = part(v, x, from, n)
      z.initial_state = #stage.needs > 0 and {} or nil
      for _, need in ipairs(stage.needs) do
        z.initial_state[need] = state[need]
      end
      local own, M = v:stage(i):summary(z)
      for s, t in pairs(after(stage, own, M, state)) do
        next_state[s] = t
      end
    end
    last.initial_state = state
    state, from = next_state, from + n
  end
  local end_y, end_state = v:forward(last)
  expect(off(end_y, y:narrow(2, 19, 28)) <= 1e-5, "%s: y is off by %.1e", name,
         off(end_y, y:narrow(2, 19, 28)))
  for s, t in pairs(whole) do
    local a = state[s]
    if angle[s] then        -- is kept modulo 2 pi
      a, t = flin.tensor(turned(a:totable())), flin.tensor(turned(t:totable()))
    end
    expect(off(a, t) <= 1e-5, "%s: %s is off by %.1e", name, s, off(a, t))
  end
end

for name in pairs(flin.stdlib) do
  check(name, flin.stdlib[name])
end
count.finish()
