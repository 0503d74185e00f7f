-- v:summary: the state behind a part of the tokens, from any start, is its
-- transition of that start, plus its own; against the float64 step.
local flin = require "flin"
local part = require "support.part"
local count = require "support.count"
local expect = count.expect

-- The transition's entry for kappa = i, j.
local function entry(m, i, j)
  return type(m[i]) == "table" and m[i][j] or i == j and m[i] or 0
end

-- Where the transition M of a start has own added, on heads' matrices.
local function carry(m, own, start, turned)
  local out = {}
  for r = 1, #own do
    out[r] = {}
    for c = 1, #own[1] do
      local sum = own[r][c]
      for k = 1, #m do
        sum = sum + (turned and entry(m, c, k) * start[r][k]
                     or entry(m, r, k) * start[k][c])
      end
      out[r][c] = sum
    end
  end
  return out
end

local function combined(own, transition, start)
  local turned = own.shape[3] ~= transition.shape[3]
  local S, M, O = start:totable(), transition:totable(), own:totable()
  for n = 1, #S do
    for h = 1, #S[1] do
      S[n][h] = carry(M[n][h], O[n][h], S[n][h], turned)
    end
  end
  return flin.tensor(S)
end

local function off(a, b)
  return (a:to "float64" - b:to "float64"):maxabs()
       / math.max(1, b:maxabs())
end

-- Three parts of a sequence, one after another, and the last one from its start
-- alone: as the whole.
local function check(name, v, at)
  local x = v:random(at)
  local y, whole = v:reference(x)
  local state, last
  for from = 1, at.T, 40 do
    local n = math.min(40, at.T + 1 - from)
    last = part(v, x, from, n)
    local own, transition = v:summary(last)
    last.initial_state = state and { S = state }
    state = state and combined(own.S, transition.S, state) or own.S
  end
  expect(off(state, whole.S) <= 1e-5, "%s: the state is off by %.1e", name,
         off(state, whole.S))
  local end_y, end_state = v:forward(last)
  local n = end_y.shape[2]
  expect(off(end_y, y:narrow(2, at.T + 1 - n, n)) <= 1e-5, "%s: y is off by"
         .. " %.1e", name, off(end_y, y:narrow(2, at.T + 1 - n, n)))
  expect(off(end_state.S, whole.S) <= 1e-5, "%s: the last state", name)
end

local ranks <const> = {                 -- of the transition; 0: it has none
  comba = 4, deltanet = 4, deltaproduct = 4, gated_deltanet = 4, gdn2 = 4,
  kda = 4, mimo_deltanet = 4, rwkv7 = 4, gla = 3, hgrn2 = 3, lightning = 3,
  linear = 3, mamba2 = 3, rwkv6 = 3, simple_gla = 3, dplr = 4, iplr = 4,
  gated_oja = 4,
}
-- Of two states: stages.lua.
local block <const> = { momentum_deltanet = true, titans = true }
for name in pairs(flin.stdlib) do
  local v = flin.stdlib[name]
  local x = v:random { T = 5, H = 1, K = 8, V = 6 }
  local ok, own, transition = pcall(v.summary, v, x)
  if ranks[name] then
    expect(ok, "%s: %s", name, own)
    expect(#transition.S.shape == ranks[name], "%s: rank %d", name,
           #transition.S.shape)
    check(name, v, { B = 2, T = 110, H = 2, K = 8, V = 6 })
    check(name, v, { B = 1, T = 90, H = 1, K = 8, V = 12 })
  elseif not block[name] then
    expect(not ok and tostring(own):find("has no transition", 1, true)
           and tostring(own):find("v:stage(1)", 1, true), "%s: %s", name, own)
  end
end

-- Packed sequences, one of them empty, and those that begin with none.
local v = flin.stdlib.gated_deltanet
local x = v:random { B = 1, T = 60, H = 2, K = 8, V = 4 }
x.cu_seqlens = { 0, 20, 20, 60 }
local own, transition = v:summary(x)
local start = flin.randn({ 3, 2, 8, 4 }, { seed = 3 })
x.initial_state = { S = start }
local _, state = v:reference(x)
expect(off(combined(own.S, transition.S, start), state.S) <= 1e-5, "packed")
expect(not pcall(v.summary, v, x), "an initial state")

count.finish()
