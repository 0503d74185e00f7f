-- Sequences that are cut in segments, where FLIN_SEGMENTS says in how many:
-- each variant whose state has a transition, and constants' gradients of
-- tensors on the host and on the GPU, of several sequences, with what forward
-- has saved.
local flin = require "flin"
local suite = require "suite"
local expect = suite.expect

suite.gpu { poison = true }

local function has_transition(v)
  local x = v:random { B = 1, T = 3, H = 1, K = 4, V = 4, dtype = "float32" }
  return (pcall(v.summary, v, x))
end

local found = 0
for _, name in ipairs(flin.stdlib_names) do
  local v = flin.stdlib[name]
  if has_transition(v) then
    found = found + 1
    local off = v:check { B = 1, T = 330, H = 2, K = 32, V = 32, seed = 4,
                          dtype = "float32", backend = "cuda" }
    expect(off.worst <= 1e-4, "%s in segments: off by %.1e", name, off.worst)
  end
end
expect(found > 10, "only %d variants have a transition", found)

-- Transitions of 32, 64, 96 and 128 rows are carried by registers, others by
-- shared memory.
for _, K in ipairs { 40, 96 } do
  local off = flin.stdlib.gated_deltanet:check { B = 1, T = 330, H = 1, K = K,
      V = K, seed = 4, dtype = "float32", backend = "cuda" }
  expect(off.worst <= 1e-4, "%d rows in segments: off by %.1e", K, off.worst)
end

-- Segments are walked side by side: a walk of several chunks is predicted to
-- take what one of a chunk does.
local function longest(T)
  local most = 0
  for _, k in ipairs(flin.stdlib.gated_deltanet:bench { T = T, H = 1, K = 64,
      V = 64, dtype = "bfloat16", backend = "cuda", seconds = 0 }.kernels) do
    for _, part in ipairs(k.parts) do
      most = part.name:find "_reverse$" and math.max(most, part.predicted)
             or most
    end
  end
  return most
end
local one, three = longest(64), longest(192)
expect(one > 0 and three <= 1.01 * one,
       "a walk's prediction: %g of a chunk, %g of three segments", one, three)

-- A vector's transition is one number, where all its entries decay alike.
local scan = flin.variant {
  name  = "gated_scan",
  input = { v = "t v", k = "t", g = "t : log_decay" },
  state = { s = "v" },
  step  = function (x, s)
    local new = flin.exp(x.g) * s.s + x.k * x.v
    return { s = new }, new
  end,
}
local entries = flin.variant {
  name  = "scan_of_entries",
  input = { v = "t v", g = "t v : log_decay" },
  state = { s = "v" },
  step  = function (x, s)
    local new = flin.exp(x.g) * s.s + x.v
    return { s = new }, new
  end,
}
local function cut(v)
  return not tostring(v:plan { V = 32, machine = "h200", backward = true })
    :find "not cut in segments"
end
expect(cut(scan) and not cut(entries), "which vectors are cut")
local off = scan:check { B = 1, T = 330, H = 2, V = 32, seed = 4,
                         dtype = "float32", backend = "cuda" }
expect(off.worst <= 1e-4, "vectors in segments: off by %.1e", off.worst)

-- Gradients, or results, as far apart as they are at all.
local function apart(a, b)
  b = b:to "float64"
  return (a:to "cpu":to "float64" - b):maxabs() / b:maxabs()
end

local function copy(x)
  local y = {}
  for name, t in pairs(x) do y[name] = t end
  return y
end

local function place(x, on_host)
  local cu = x.cu_seqlens
  x.cu_seqlens = nil
  local y = on_host and copy(x) or suite.on_gpu(x)
  x.cu_seqlens, y.cu_seqlens, y.backend = cu, cu, "cuda"
  return y
end

-- What a call of the variant is given, and its gradients by the float64 step.
local function truth(v, cu)
  local x = v:random { B = cu and 1 or 2, T = 330, H = 2, V = 32,
                       K = v ~= scan and 32 or nil, dtype = "float32",
                       seed = 3 }
  x.cu_seqlens = cu
  x.g = x.g and x.g * 0.01              -- a segment's start is not forgotten
  local w = copy(x)
  w.dy = flin.randn((v:reference(x)).shape, { seed = 9 })
  return x, w, v:reference_backward(w)
end

local function sums(v, on_host, save, x, w, want)
  local call, back = place(copy(x), on_host), place(copy(w), on_host)
  call.save = save
  local _, _, saved = v:forward(call)
  back.saved = save and saved
  local got = v:backward(back)
  for _, input in ipairs(v.inputs) do
    local off = apart(got[input.name], want[input.name])
    expect(off <= 2e-5, "%s, %s%s%s: d_%s is off by %.1e", v.name,
           x.cu_seqlens and "packed" or "two entries",
           on_host and ", on the host" or "", save and ", saved" or "",
           input.name, off)
  end
end

for _, v in ipairs { flin.stdlib.comba, flin.stdlib.mamba2, scan } do
  for _, cu in ipairs { false, { 0, 200, 330 } } do
    local x, w, want = truth(v, cu or nil)
    for _, on_host in ipairs { false, true } do
      sums(v, on_host, nil, x, w, want)
      sums(v, on_host, true, x, w, want)
    end
  end
end

suite.finish()
