-- What the scripts here share: counting, tensors on the GPU, limits.
local flin = require "flin"

local suite = {}
local passed, failed = 0, 0

-- expect(ok, FORMAT, ...): what is wrong if it is not.
function suite.expect(ok, ...)
  if ok then
    passed = passed + 1
  else
    failed = failed + 1
    print("FAIL " .. string.format(...))
    io.stdout:flush()
  end
end

function suite.finish()
  print(("%d passed, %d failed"):format(passed, failed))
  os.exit(failed == 0 and 0 or 1)
end

-- flin.cuda's GPU, or the end.
function suite.gpu(options)
  local gpu, why = flin.cuda(options)
  if gpu then return gpu end
  print("skip: " .. why)
  os.exit(0)
end

-- The table with its tensors on the GPU.
function suite.on_gpu(inputs)
  local out = {}
  for name, x in pairs(inputs) do
    out[name] = flin.is_tensor(x) and x:to "cuda" or x
  end
  return out
end

-- Root of the squares of the error over that of what is right, b.
function suite.relative(a, b)
  local off = a:to "cpu":to "float64" - b:to "float64"
  local norm = (b:to "float64" * b:to "float64"):sum()
  return ((off * off):sum() / math.max(norm, 1e-30))^0.5
end

-- Whether its states have an angle, whose gradient is a gate's.
function suite.turns(variant)
  for _, state in ipairs(variant.states) do
    if state.axes == "p" then return true end
  end
end

-- Gradients of angles, and of what scales them, sum over all tokens behind
-- them what nearly cancels: from a loss of y alone they are as good after
-- many tokens as after few.
function suite.check_angles(name, v, T, K)
  local at = { B = 1, T = T, H = 1, K = K, V = K, dtype = "bfloat16" }
  local host, other = v:random(at), nil
  at.seed = 8
  other = v:random(at)
  host.dy = other.v or other.x
  local got = v:backward(suite.on_gpu(host))
  local want = v:reference_backward(host)
  for _, input in ipairs(v.inputs) do
    if input.axes:find "p" or input.axes == "t" then
      local off = suite.relative(got[input.name], want[input.name])
      suite.expect(off <= 8e-3, "%s, %d tokens: d_%s is off by %.1e", name, T,
                   input.name, off)
    end
  end
end

-- Gates of normal numbers u: -30 to -300 and -1e3 to -inf, of which exp leaves
-- little or nothing within a chunk, between such as keep all or most.
function suite.far(u)
  if u < -1.9 then return -math.huge end
  if u < -1.5 then return -10 ^ (3 + 15 * (-1.5 - u)) end
  if u < -0.4 then return math.max(-300, -30 + 135 * (u + 0.4)) end
  return u < 0.6 and 0 or -u * u
end

local GATES <const> = { log_decay = true, unit = true, positive = true }

-- Matrices of tokens in dtype; gates, angles and constants that models hold
-- in float32 are so; `wide`: those that are matrices, too.
function suite.typed(v, host, dtype, wide)
  for _, input in ipairs(v.inputs) do
    local matrix = input.axes:find "^t .*[kvp]"
                   and not (wide and GATES[input.domain])
    host[input.name] = host[input.name]:to(matrix and dtype or "float32")
  end
  return host
end

-- How far the float64 gradients move, by name, where inputs and dy are rounded
-- to about 8 bits: what a sum that cancels may be off by.
function suite.moved(v, host, want)
  local moved = {}
  for seed = 1, 2 do
    local near = {}
    for name, x in pairs(host) do
      near[name] = x
      if flin.is_tensor(x) then
        x = x:to "float64"
        near[name] = x + x * flin.randn(x.shape, { seed = seed }):to "float64"
                         * 2^-9
      end
    end
    for name, x in pairs(v:reference_backward(near)) do
      if flin.is_tensor(x) then
        moved[name] = math.max(moved[name] or 0,
                               suite.relative(x, want[name]))
      end
    end
  end
  return moved
end

-- What a result of a check may be off by at least, where rounding is amplified:
-- a ratio whose denominator is nearly zero moves by percents where its inputs
-- are rounded to 16 bits. The host's own float32 run of the same numbers shows
-- it: half of what it is off by, as if it rounded as its 16-bit types do; but
-- no more than a tenth, as wrong kernels are off by more.
function suite.amplified(v, case, what)
  local again = {}
  for key, x in pairs(case) do again[key] = x end
  again.backend, again.dtype = "cpu", "float32"
  local bits = case.dtype == "bfloat16" and 15 or 12
  return math.min(0.1, 2^bits * (v:check(again)[what] or 0))
end

-- How far the gradient of a constant is off: it is one sum over all tokens, of
-- terms of either sign, and by chance nearly zero. So four such sums, of other
-- numbers, are measured together.
function suite.off_over_draws(v, case, input)
  local error, truth = 0, 0
  for seed = 1, 4 do
    local at = {}
    for key, x in pairs(case) do at[key] = x end
    at.seed, at.chunk, at.backend = seed, nil, nil
    local host = v:random(at)
    host.chunk, host.cu_seqlens = case.chunk, case.cu_seqlens
    host.dy = flin.randn(v:reference(host).shape, { seed = 9 + seed })
              :to(case.dtype or "float32")
    local want = v:reference_backward(host)[input]
    local off = v:backward(suite.on_gpu(host))[input]:to "cpu":to "float64"
                - want
    error, truth = error + (off * off):sum(), truth + (want * want):sum()
  end
  return math.sqrt(error / truth)
end

-- Gradients of all inputs, from what forward has saved, are within limit(NAME),
-- or within six times what they move by where the inputs are rounded: a softmax
-- of a state's reads rounds its weights, the states and their gradients, too,
-- and what is left of the difference of two sums (gsa's d_q) is off by 4 times.
function suite.check_gradients(name, v, host, limit)
  local want = v:reference_backward(host)
  local there, moved = suite.on_gpu(host), nil
  local dy = there.dy
  there.dy, there.save = nil, true
  local _, _, saved = v:forward(there)
  local got = v:backward { saved = saved, dy = dy }
  for _, input in ipairs(v.inputs) do
    local key = input.name
    local off = suite.relative(got[key], want[key])
    if not (off <= limit(key)) then
      moved = moved or suite.moved(v, host, want)
      suite.expect(off <= 6 * moved[key], "%s: d_%s is off by %.1e, of which "
                   .. "rounding is %.1e", name, key, off, moved[key])
    else
      suite.expect(true)
    end
  end
  suite.expect(not v.note, "%s: %s", name, v.note)
end

-- What erases is solved for in each chunk: its rounding grows with the keys'
-- likeness. Cyclic flow attention rounds five products between its passes.
suite.ROUNDS_MORE = {
  cyfa = true,
  deltanet = true, gated_deltanet = true, kda = true, gdn2 = true,
  comba = true, deltaproduct = true, rwkv7 = true, precond_gdn = true,
  precond_kda = true, deltanet_rope = true, mimo_deltanet = true,
  momentum_deltanet = true, iplr = true,
}

return suite
