-- On a GPU: windows whose weights differ by key or value, as scans in blocks,
-- with a sequence's first tokens beside them: of lengths, heads that share
-- tensors and packed sequences that nobody has chosen, forward, backward, from
-- states and what is kept, against float64, the same bits each time.
--   flin tests/cuda/windows.lua [FIRST [LAST]]      seeds; 8 are all masks
local flin = require "flin"
local suite = require "suite"
local exp = flin.exp
local expect <const>, on_gpu <const> = suite.expect, suite.on_gpu

local first <const> = tonumber(arg[1] or 1)
local last <const> = tonumber(arg[2] or first + 7)

suite.gpu { poison = true }

local seed
local function pick(n)
  seed = seed * 6364136223846793005 + 1442695040888963407
  return (seed >> 33) % n + 1
end

local function decay(i, j, p) return exp(p.g_cumsum[i] - p.g_cumsum[j]) end

-- { inputs, weights in the window, weights of the first tokens }
local masks <const> = {
  { { g = "t k : log_decay" }, decay },
  { { a = "t k", b = "t v" },
    function (i, j, p) return p.a[i] * p.b[j] end },
  { { g = "t k : log_decay", b = "t" },
    function (i, j, p) return p.b[j] * decay(i, j, p) end, decay },
  { { g = "t v : log_decay", c = "" },
    function (i, j, p) return p.c * decay(i, j, p) end,
    function (i, j, p) return p.c end },
  { { g = "t k : log_decay", a = "t k" },
    function (i, j, p) return p.a[j] * decay(i, j, p) end },
  { { g = "t v : log_decay" }, decay, decay },
  { { b = "t k" }, function (i, j, p) return p.b[j] end,
    function (i, j, p) return p.b[i] end },
  { { g = "t k : log_decay", x = "t" }, function (i, j, p)
      return flin.cos(p.x[i] - p.x[j]) * decay(i, j, p)
    end },
}

local function window(W, S, near, sink)
  return function (i, j, p)
    if i < j then return 0 end
    if j < S then return sink(i, j, p) end
    if i - j < W then return near(i, j, p) end
    return 0
  end
end

-- Ends of up to five sequences: empty, of one token, of a block, of more.
local function ends(W)
  local cu = { 0 }
  for n = 2, pick(5) + 1 do
    local kind = pick(5)
    local len = kind == 1 and 0 or kind == 2 and 1 or kind == 3 and W
             or pick(3 * W + 20)
    cu[n] = cu[n - 1] + len
  end
  if cu[#cu] < W then cu[#cu + 1] = cu[#cu] + W + 3 end
  return cu
end

-- The first is long: later ones may be predicted to be faster by states.
local function call(v, W, what, long)
  local packed = not long and pick(3) > 1
  local cu = packed and ends(W) or nil
  local T = long and 6 * W + 7 or packed and cu[#cu]
         or ({ W // 2 + pick(W // 2), W, 2 * W, W + pick(3 * W) })[pick(4)]
  local shared = pick(3) == 1
  local H = shared and 4 or 2
  local dtype <const> = pick(2) == 1 and "float32" or "bfloat16"
  local x = v:random { T = T, B = packed and 1 or pick(2), H = H, K = 16,
                       V = 16, seed = pick(1000) }
  x = suite.typed(v, x, dtype)
  if shared then                        -- one of two heads, another of four
    for _, input in ipairs(v.inputs) do
      if (input.axes .. " "):find "^t " and input.name ~= "q" then
        x[input.name] = x[input.name]:narrow(3, 1, pick(2))
      end
    end
  end
  what = ("%s, %s, %d tokens, %d heads%s"):format(what, dtype, T, H,
    packed and ", " .. table.concat(cu, "/") or "")
  local y_like = flin.randn({ x.q.shape[1], T, H, 16 }, { seed = 3 })
  x.dy = y_like:to(dtype)
  local want = {}
  for n, t in pairs(x) do want[n] = t:to "float64" end
  local there = on_gpu(x)
  want.cu_seqlens, there.cu_seqlens = cu, cu
  local function near(name, a, b, most)
    local off = a:to "cpu":to "float64" - b
    local e = math.sqrt((off * off):sum() / math.max((b * b):sum(), 1e-12))
    expect(e <= most, "%s: %s is off by %.1e", what, name, e)
  end
  local grad, again = v:backward(there), v:backward(there)
  for n, g in pairs(v:reference_backward(want)) do
    if n ~= "initial_state" then
      near("d_" .. n, grad[n], g, dtype == "bfloat16" and 2e-2 or 1e-4)
      expect((grad[n]:to "cpu" - again[n]:to "cpu"):maxabs() == 0,
             "%s: d_%s changes", what, n)
    end
  end
  there.dy, want.dy = nil, nil
  local y, kept = v:reference(want)
  local own, state = v:forward(there)
  near("y", own, y, dtype == "bfloat16" and 1e-2 or 1e-5)
  for n, s in pairs(kept) do
    near("state " .. n, state[n], s, dtype == "bfloat16" and 1e-2 or 1e-5)
  end
  expect(not long or not v.note, "%s: %s", what, v.note)
end

-- From states: of one token, of some, of more than the window; tensors of the
-- host, too.
local function call_from(v, W, what)
  local before <const> = ({ 1, W // 2, 2 * W + 5 })[pick(3)]
  local cu = { 0, 3 * W + 70 + pick(W) }
  if pick(2) == 1 then cu[3] = cu[2] + 3 * W + 80 end
  local x = v:random { T = cu[#cu], B = 1, H = 2, K = 16, V = 16,
                       seed = pick(1000) }
  local _, begin = v:reference(v:random { T = before, B = #cu - 1, H = 2,
                                          K = 16, V = 16,
                                          seed = pick(1000) })
  for name, s in pairs(begin) do begin[name] = s:to "float32" end
  x.initial_state, x.cu_seqlens = begin, cu
  local want, kept = v:reference(x)
  what = ("%s, %d tokens behind %d, %d sequences"):format(what, cu[#cu], before,
                                                          #cu - 1)
  local there = on_gpu(x)
  there.initial_state = on_gpu(begin)
  local y, state = v:forward(there)
  expect(suite.relative(y, want) <= 1e-5, "%s: y", what)
  for n, s in pairs(kept) do
    expect(suite.relative(state[n], s) <= 1e-5, "%s: state %s", what, n)
  end
  x.backend = "cuda"
  local own, host = v:forward(x)
  expect((own - y:to "cpu"):maxabs() == 0, "%s: the host's tensors", what)
  for n, s in pairs(host) do
    expect((s - state[n]:to "cpu"):maxabs() == 0, "%s: the host's state %s",
           what, n)
  end
end

-- Whatever is in one sequence, others are what they were, also where a block
-- ends within another's, and what is read behind it is theirs.
local function alone(v, W, what)
  local cu <const> = { 0, 2 * W + 5, 4 * W + 12, 6 * W + 20 }
  local x = v:random { T = cu[4], B = 1, H = 2, K = 16, V = 16, seed = 5 }
  x.dy = flin.randn(x.v.shape, { seed = 3 })
  local function run(bad)
    local y = {}
    for n, t in pairs(x) do
      local c = t:clone()
      if bad and #t.shape > 2 then
        c:narrow(2, cu[bad] + 1, cu[bad + 1] - cu[bad]):fill(0 / 0)
      end
      y[n] = c:to "cuda"
    end
    y.cu_seqlens, y.validate = cu, false
    local grad = v:backward(y)
    y.dy = nil
    grad.y, grad.initial_state = v:forward(y), nil
    return grad
  end
  local clean = run()
  for bad = 1, 3 do
    for n, t in pairs(run(bad)) do
      for s = 1, #t.shape > 2 and 3 or 0 do
        local from <const>, len <const> = cu[s] + 1, cu[s + 1] - cu[s]
        local off = t:to "cpu":narrow(2, from, len)
                    - clean[n]:to "cpu":narrow(2, from, len)
        expect(s == bad or off:maxabs() == 0,
               "%s: sequence %d's nan is in %s of %d", what, bad, n, s)
      end
    end
  end
end

for n = first, last do
  seed = n
  local form = masks[(n - 1) % #masks + 1]
  local W = ({ 20 + pick(30), 64, 100, 40 })[pick(4)]
  local S = form[3] and pick(6) or 0
  local v = flin.variant { name = "window", input = form[1],
                           mask = window(W, S, form[2], form[3]) }
  local what = ("seed %d, a window of %d and the first %d"):format(n, W, S)
  expect(tostring(v):find "or as scans in blocks", "%s: %s", what, v)
  for c = 1, 5 do call(v, W, what, c == 1) end
  for _ = 1, 2 do call_from(v, W, what) end
  alone(v, W, what)
end
suite.finish()
