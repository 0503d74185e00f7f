-- Kernels for Hopper against the float64 step, bfloat16: forward, or what they
-- leave for the way back, which goes by the others.
--   flin tests/cuda/hopper.lua [gradients] [NAME ...]
-- On a driver of tests with FAKE_ARCH=9 they run on the host; FAKE_HOPPER=1
-- then makes sure that no others do.
local flin = require "flin"

local gpu, why = flin.cuda()
if not gpu then
  print("skip: " .. why)
  os.exit(0)
end

local ERASES <const> = {
  deltanet = true, gated_deltanet = true, kda = true, gdn2 = true,
  comba = true, deltaproduct = true, rwkv7 = true, precond_gdn = true,
  precond_kda = true, deltanet_rope = true, mimo_deltanet = true,
}

local passed, failed = 0, 0
local function expect(ok, ...)
  if ok then
    passed = passed + 1
  else
    failed = failed + 1
    print("FAIL " .. string.format(...))
  end
end

local cases <const> = {
  { B = 1, T = 150, H = 1, HV = 2, K = 64, V = 64 },
  { B = 1, T = 140, H = 1, K = 64, V = 64, ends = { 0, 0, 65, 66, 140 } },
}

local function relative(a, b)
  local off = a:to "cpu":to "float64" - b:to "float64"
  local norm = (b:to "float64" * b:to "float64"):sum()
  return ((off * off):sum() / math.max(norm, 1e-30))^0.5
end

-- As models hold them: gates of a head, and parameters, in float32.
local function mix(v, host)
  for _, a in ipairs(v.inputs) do
    if not a.axes:find "^t .*[kvp]" then
      host[a.name] = host[a.name]:to "float32"
    end
  end
end

local function check_forward(name, case, ends)
  local v = flin.stdlib[name]
  local host, there = v:random(case), {}
  if ends then mix(v, host) end
  for key, x in pairs(host) do there[key] = x:to "cuda" end
  host.cu_seqlens, there.cu_seqlens = ends, ends
  local y, state = v:forward(there)
  local want, left = v:reference(host)
  local limit = ERASES[name] and 6e-3 or 4e-3
  local function near(what, a, b)
    local off = relative(a, b)
    expect(off <= limit, "%s T %d: %s is off by %.1e", name, case.T, what,
           off)
  end
  near("y", y, want)
  for key, x in pairs(left) do near(key, state[key], x) end
end

-- Gradients from what forward has saved, and, the same bits, from nothing.
local function check_gradients(name, case, ends)
  local v = flin.stdlib[name]
  local host, there = v:random(case), {}
  for key, x in pairs(host) do there[key] = x:to "cuda" end
  host.cu_seqlens, there.cu_seqlens = ends, ends
  there.save = true
  local y, _, saved = v:forward(there)
  expect(relative(y, v:reference(host)) <= 4e-3, "%s: y that saves", name)
  host.dy = y:to "cpu"
  there.save, there.dy = nil, host.dy:to "cuda"
  local grad = v:backward { saved = saved, dy = there.dy }
  local again, want = v:backward(there), v:reference_backward(host)
  for key, x in pairs(grad) do
    if flin.is_tensor(x) then
      local off = relative(x, want[key])
      expect(off <= 8e-3, "%s: gradient of %s off by %.1e", name, key, off)
      expect((x:to "cpu" - again[key]:to "cpu"):maxabs() == 0,
             "%s: gradient of %s not the same as from what is saved", name,
             key)
    end
  end
end

local names, check = { ... }, check_forward
if names[1] == "gradients" then
  check = check_gradients
  table.remove(names, 1)
  table.remove(cases, 1)                -- that of many sequences is enough
end
if not names[1] then
  for name in pairs(flin.stdlib) do names[#names + 1] = name end
  table.sort(names)
end
for _, name in ipairs(names) do
  for _, case in ipairs(cases) do
    local ends = case.ends
    local at = { seed = 1, dtype = "bfloat16" }
    for key, x in pairs(case) do at[key] = key ~= "ends" and x or nil end
    local ok, why_not = pcall(check, name, at, ends)
    expect(ok, "%s: %s", name, why_not)
  end
end
print(("%d passed, %d failed"):format(passed, failed))
os.exit(failed == 0 and 0 or 1)
