-- Windows that nobody has chosen: of one token up to more than there are, from
-- the diagonal, the token behind it or later on, with a sequence's first tokens
-- beside them or without these; weights of tokens, keys and values; sequences
-- that are empty, of a token, of a block; calls in parts. On the CPU, against
-- the function itself, its gradients and the float64 step.
--   flin windows_random.lua [FIRST [LAST]]      seeds
local flin = require "flin"
local exp = flin.exp

local count = require "support.count"
local check <const> = count.check

local first <const> = tonumber(arg[1] or 1)
local last <const> = tonumber(arg[2] or first + 23)

local seed
local function pick(n)
  seed = seed * 6364136223846793005 + 1442695040888963407
  return (seed >> 33) % n + 1
end
local function one_of(list) return list[pick(#list)] end

local function decay(i, j, p) return exp(p.g_cumsum[i] - p.g_cumsum[j]) end

-- { inputs, weights }
local weights <const> = {
  { {}, function () return 1 end },
  { { b = "t" }, function (_, j, p) return p.b[j] end },
  { { g = "t : log_decay" }, decay },
  { { g = "t : log_decay", a = "t", b = "t" },
    function (i, j, p) return p.a[i] * p.b[j] * decay(i, j, p) end },
  { { g = "t k : log_decay" }, decay },
  { { g = "t v : log_decay", b = "t v" },
    function (i, j, p) return p.b[j] * decay(i, j, p) end },
  { { x = "t", c = "" },
    function (i, j, p) return p.c * flin.cos(p.x[i] - p.x[j]) end },
  { { w = "t" },
    function (i, j, p) return p.w[j] / (i - j + 1) end },
}
local sinks <const> = {
  function () return 1 end,
  function (i, _, p) return p.s[i] end,
  function (_, j, p) return p.s[j] end,
}

local function ends(W)
  local cu = { 0 }
  for n = 2, pick(5) + 1 do
    cu[n] = cu[n - 1] + one_of { 0, 1, W, pick(3 * W + 20), pick(9) }
  end
  return cu
end

-- A sequence in parts, each from the states that the one before has left.
local function in_parts(name, v, W)
  local T <const> = 2 * W + pick(3 * W + 30)
  local x = v:random { B = 1, H = 2, T = T, K = 3, V = 2, seed = pick(1000) }
  local want, state, at, worst = {}, {}, 1, 0
  for n, t in pairs(x) do want[n] = t:to "float64" end
  local y = v:reference(want)
  while at <= T do
    local n = math.min(T - at + 1, one_of { 1, pick(W), 2 * W, T })
    local part, z = { initial_state = state }, nil
    for input, t in pairs(x) do
      local timed = t.shape[2] == T and #t.shape > 2
      part[input] = timed and t:narrow(2, at, n) or t
    end
    z, state = v:forward(part)
    local off = (z:to "float64" - y:narrow(2, at, n)):maxabs()
    worst, at = math.max(worst, off), at + n
  end
  check(name .. ", in parts", worst <= 5e-5 * (1 + y:maxabs()), worst)
end

for n = first, last do
  seed = n
  local W <const> = one_of { 1, 2, 3, 13, 20 + pick(30), 64, 100, 150 }
  local S <const> = one_of { 0, 0, 1, 4, W, W + 9 }
  local late <const> = one_of { 0, 0, 0, 1, 2, W // 2 }
  local near, sink = one_of(weights), one_of(sinks)
  local input = { s = S > 0 and sink ~= sinks[1] and "t" or nil }
  for name, axes in pairs(near[1]) do input[name] = axes end
  local name = ("seed %d: from %d to %d and the first %d"):format(n, late, W, S)
  local ok, v = pcall(flin.variant, { name = "window", input = input,
                                      mask = function (i, j, p)
    if i < j then return 0 end
    if j < S then return sink(i, j, p) end
    if i - j < late or i - j >= late + W then return 0 end
    return near[2](i, j, p)
  end })
  check(name .. " compiles", ok, v)
  for _ = 1, ok and 3 or 0 do
    local at = { K = 3, V = 2, H = 1, HV = pick(2), seed = pick(1000) }
    if pick(2) == 1 then
      at.cu_seqlens = ends(W)
      at.T = at.cu_seqlens[#at.cu_seqlens]
    else
      at.B = pick(2)
      at.T = one_of { 1, W, W + 1, math.max(W - 1, 1), 3 * W + pick(50) }
    end
    local e = v:check(at)
    check(("%s, %d tokens%s"):format(name, at.T, at.cu_seqlens and ", "
          .. table.concat(at.cu_seqlens, "/") or ""), e.worst <= 5e-5, e)
  end
  if ok then in_parts(name, v, W) end
end

count.finish()
