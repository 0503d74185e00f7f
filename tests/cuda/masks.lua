-- On a GPU: masks of every kind that is a scan. Of both directions, whose two
-- results are added up; for each key or value; by remainders; under which a
-- delta rule works; and those over all pairs of tokens, whose keys and values
-- are kept. Forward, token by token and gradients against float64, the same
-- bits each time, packed sequences, heads that are shared, tensors of the host.
--   flin tests/cuda/masks.lua [T [NAME ...]]
local flin = require "flin"
local exp = flin.exp
local suite = require "suite"
local expect <const>, on_gpu <const> = suite.expect, suite.on_gpu
local relative <const> = suite.relative
local T <const> = tonumber((...) or 130)

local only = select("#", ...) > 1 and {}
for n = 2, select("#", ...) do only[select(n, ...)] = true end

suite.gpu { poison = true }

local definitions <const> = {
  plain = { causal = false, mask = function () return 1 end },
  gated = { causal = false, mask = function (i, j, p)
    if i < j then return p.b[j] * exp(p.h_cumsum[j] - p.h_cumsum[i]) end
    return p.a[i] * exp(p.g_cumsum[i] - p.g_cumsum[j])
  end },
  near = { causal = false, mask = function (i, j, p)
    if flin.abs(i - j) > 2 then return 0 end
    return p.w[j] / (flin.abs(i - j) + 1)
  end },
  near_entries = { causal = false,
                   input = { a = "t", u = "t k", w = "t v" },
                   mask = function (i, j, p)
    if flin.abs(i - j) > 4 then return 0 end
    return flin.sigmoid(p.a[i] * p.w[j] + p.u[i])
  end },
  near_pairs = { causal = false, mode = "quadratic", mask = function (i, j, p)
    if flin.abs(i - j) > 2 then return 0 end
    return p.w[j] / (flin.abs(i - j) + 1)
  end },
  behind = { causal = false, input = { s = ": log_decay" },
             mask = function (i, j, p)
    if i >= j then return 0 end
    return exp(p.s * (j - i))
  end },
  keyed = { input = { g = "t k : log_decay", b = "t" },
            mask = function (i, j, p)
    if i < j then return 0 end
    return p.b[j] * exp(p.g_cumsum[i] - p.g_cumsum[j])
  end },
  bonus = { input = { g = "t k : log_decay", u = "k" },
            mask = function (i, j, p)
    if i < j then return 0 end
    if i == j then return p.u end
    return exp(p.g_cumsum[i - 1] - p.g_cumsum[j])
  end },
  columns = { input = { a = "t k", b = "t v", g = "t : log_decay" },
              mask = function (i, j, p)
    if i < j then return 0 end
    return p.a[i] * p.b[j] * exp(p.g_cumsum[i] - p.g_cumsum[j])
  end },
  keyed_ways = { causal = false, input = { g = "t k : log_decay" },
                 mask = function (i, j, p)
    local d = p.g_cumsum[i] - p.g_cumsum[j]
    return exp(i < j and -d or d)
  end },
  delta = { transition = flin.transition.delta_rule(),
            mask = function (i, j, p)
    if i < j then return 0 end
    return p.a[i] * exp(p.g_cumsum[i] - p.g_cumsum[j])
  end },
  window = { mask = function (i, j, p)         -- its rings come round
    if i < j or i - j >= T - 20 then return 0 end
    return p.b[j] * exp(p.g_cumsum[i] - p.g_cumsum[j])
  end },
  window_pairs = { mode = "quadratic", mask = function (i, j, p)
    if i < j or i - j >= T - 20 then return 0 end
    return p.b[j] * exp(p.g_cumsum[i] - p.g_cumsum[j])
  end },
  window_rings = { mode = "linear", mask = function (i, j, p)
    if i < j or i - j >= T - 20 then return 0 end
    return p.b[j] * exp(p.g_cumsum[i] - p.g_cumsum[j])
  end },
  window_keyed = { input = { g = "t k : log_decay", b = "t" },
                   mask = function (i, j, p)    -- scans in blocks
    if i < j or i - j >= 20 then return 0 end
    return p.b[j] * exp(p.g_cumsum[i] - p.g_cumsum[j])
  end },
  window_behind = { input = { s = ": log_decay", a = "t" },
                    mask = function (i, j, p)
    local d = i - j                            -- a stretch that is further back
    if d < 9 or d >= T // 3 then return 0 end
    return p.a[i] * exp(p.s * d)
  end },
  window_coupled = { mask = function (i, j, p)
    if i < j or i - j >= T // 3 or (i - j) % 3 > 1 then return 0 end
    return p.b[j] / (i - j + 1)
  end },
  sinks = { mask = function (i, j)              -- the first tokens, beside it
    if i < j then return 0 end
    if i - j < T // 3 or j < 3 then return 1 end
    return 0
  end },
  sinks_decay = { mode = "quadratic", mask = function (i, j, p)
    if i < j then return 0 end
    if j < 5 then return p.a[j] * p.a[i] end
    if i - j < T // 4 then return exp(p.g_cumsum[i] - p.g_cumsum[j]) end
    return 0
  end },
  strided = { mask = function (i, j, p)
    if i < j or (i - j) % 3 > 0 then return 0 end
    return exp(p.g_cumsum[i] - p.g_cumsum[j])
  end },
  summaries = { mask = function (i, j, p)
    if i < j then return 0 end
    if i - j < 3 or j % 8 > 6 then return p.a[j] end
    return 0
  end },
  pairs = { mode = "quadratic", tokens = T, mask = function (i, j, p)
    if i < j then return 0 end
    return p.b[j] / (i - j + 1)
  end },
  pairs_near = { normalise = "softmax", mask = function (i, j)
    if i < j or i - j >= T - 20 then return 0 end
    return 1
  end },
  pairs_sinks = { normalise = "softmax", mask = function (i, j, p)
    if i < j then return 0 end
    if i - j < T // 4 or j < 3 then return p.b[j] ^ 2 end
    return 0
  end },
  pairs_scored = { normalise = "softmax", tokens = T,
                   score = function (s, i, j, p)
    return 30 * flin.tanh(s / 30) + p.b[j]
  end },
}

-- float32: what it rounds. bfloat16: what is stored in it, the parts of the
-- sum included; of gates, sums that cancel.
local limits <const> = { float32 = 1e-5, bfloat16 = 8e-3 }

-- The last token by itself, behind the others.
local function decode(v, x, y, what, limit)
  local first, last = {}, {}
  for n, t in pairs(x) do
    local timed = t.shape[2] == T
    first[n] = timed and t:narrow(2, 1, T - 1) or t
    last[n] = timed and t:narrow(2, T, 1) or t
  end
  first.initial_state = {}
  local _, state = v:forward(on_gpu(first))
  local one = on_gpu(last)
  one.state = state
  local e = relative(v:step(one), y:narrow(2, T, 1))
  expect(e <= limit, "%s: the last token is off by %.1e", what, e)
end

local function check(name, dtype, D, H, cu)
  if only and not only[name] then return end
  local def = { name = name }
  for k, x in pairs(definitions[name]) do def[k] = x end
  local v, B = flin.variant(def), cu and 1 or 2
  local x = suite.typed(v, v:random { T = T, B = B, H = H, HV = 2, K = D,
                                      V = D }, dtype)
  local want, what = {}, ("%s, %s, %d wide"):format(name, dtype, D)
  local limit = limits[dtype]
  x.dy = flin.randn({ B, T, 2, D }, { seed = 3 }):to(dtype)
  for n, t in pairs(x) do want[n] = t:to "float64" end
  local there = on_gpu(x)
  want.cu_seqlens, there.cu_seqlens = cu, cu
  local grad, again = v:backward(there), v:backward(there)
  for n, g in pairs(v:reference_backward(want)) do
    if n ~= "initial_state" then
      local e = relative(grad[n], g)
      local gate = n == "g" or n == "h" or n == "s"
      expect(e <= (gate and dtype == "bfloat16" and 2e-2 or limit),
             "%s: d_%s is off by %.1e", what, n, e)
      expect((grad[n]:to "cpu" - again[n]:to "cpu"):maxabs() == 0,
             "%s: d_%s changes", what, n)
    end
  end
  there.dy, want.dy, x.dy = nil, nil, nil
  local y, ends = v:reference(want)
  local own, state = v:forward(there)
  local e = relative(own, y)
  expect(e <= limit, "%s: y is off by %.1e", what, e)
  for n, s in pairs(state and ends or {}) do
    e = relative(state[n], s)
    expect(e <= limit, "%s: state %s is off by %.1e", what, n, e)
  end
  if def.causal == nil and not cu then decode(v, x, y, what, limit) end
  if def.causal == nil then return end
  x.cu_seqlens, x.backend = cu, "cuda"
  e = relative(v:forward(x), y)
  expect(e <= limit, "%s: of the host's tensors y is off by %.1e", what, e)
end

local names = {}
for name in pairs(definitions) do names[#names + 1] = name end
table.sort(names)
for _, name in ipairs(names) do
  check(name, "bfloat16", 64, 1)
end
local ends <const> = { 0, 1, 1, T // 2, T }
for _, name in ipairs { "gated", "keyed", "strided", "window_behind",
                        "window_coupled", "sinks", "sinks_decay",
                        "pairs_sinks" } do
  check(name, "float32", 16, 2, ends)
end
check("gated", "bfloat16", 64, 2, ends)
check("sinks", "bfloat16", 64, 2, ends)
for _, name in ipairs { "behind", "pairs", "pairs_near", "pairs_scored",
                        "pairs_sinks" } do
  check(name, "float32", 16, 1)
end

-- Windows of each key's decays, as scans in blocks: where these are shorter
-- than what runs at once, end within a sequence or with it, are its whole; with
-- gates that leave nothing.
local keyed <const> = {
  decays = { input = { g = "t k : log_decay" }, mask = function (i, j, p)
    return exp(p.g_cumsum[i] - p.g_cumsum[j])
  end },
  weighed = { input = { g = "t k : log_decay", a = "t k", b = "t v", c = "" },
              mask = function (i, j, p)
    return p.a[i] * p.b[j] * p.c * exp(p.g_cumsum[i] - p.g_cumsum[j])
  end },
  columns = { input = { a = "t k", b = "t v" }, mask = function (i, j, p)
    return p.a[i] * p.b[j]                      -- no decay at all
  end },
  two = { input = { g = "t v : log_decay", b = "t", x = "t" },
          mask = function (i, j, p)
    return (p.b[j] + flin.cos(p.x[i] - p.x[j]))
      * exp(p.g_cumsum[i] - p.g_cumsum[j])
  end },
}
local function blocks(name, W, T, dtype, cu, walls)
  if only and not only["blocks_" .. name] then return end
  local mask <const> = keyed[name].mask
  local v = flin.variant { name = "blocks_" .. name, input = keyed[name].input,
                           mask = function (i, j, p)
    if i < j or i - j >= W then return 0 end
    return mask(i, j, p)
  end }
  local what = ("%s within %d of %d, %s"):format(v.name, W, T, dtype)
  local x = suite.typed(v, v:random { T = T, B = cu and 1 or 2, H = 2, K = 16,
                                      V = 16, seed = W }, dtype)
  for at, g in pairs(walls or {}) do x.g:narrow(2, at, 1):fill(g) end
  x.dy = flin.randn(x.v.shape, { seed = 3 }):to(dtype)
  local want = {}
  for n, t in pairs(x) do want[n] = t:to "float64" end
  local there = on_gpu(x)
  want.cu_seqlens, there.cu_seqlens = cu, cu
  local grad, again = v:backward(there), v:backward(there)
  for n, g in pairs(v:reference_backward(want)) do
    if n ~= "initial_state" then
      local e = relative(grad[n], g)
      expect(e <= (dtype == "bfloat16" and 2e-2 or 1e-4),
             "%s: d_%s is off by %.1e", what, n, e)
      expect((grad[n]:to "cpu" - again[n]:to "cpu"):maxabs() == 0,
             "%s: d_%s changes", what, n)
    end
  end
  there.dy, want.dy = nil, nil
  local y, ends = v:reference(want)
  local own, state = v:forward(there)
  local e = relative(own, y)
  expect(e <= limits[dtype], "%s: y is off by %.1e", what, e)
  for n, s in pairs(ends) do
    e = relative(state[n], s)
    expect(e <= limits[dtype], "%s: state %s is off by %.1e", what, n, e)
  end
  expect(not v.note, "%s: %s", what, v.note)
end
blocks("decays", 30, 150, "float32")
blocks("decays", 64, 150, "bfloat16")
blocks("decays", 40, 170, "float32", nil,
       { [20] = -math.huge, [41] = -1e9, [80] = -math.huge, [81] = -1e6,
         [160] = -1e9 })
blocks("decays", 200, 150, "float32")
blocks("weighed", 50, 300, "float32", { 0, 130, 130, 300 })
blocks("columns", 60, 150, "float32")
blocks("two", 70, 151, "bfloat16")

suite.finish()
