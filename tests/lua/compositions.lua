-- What flin.attention composes, against the float64 step: results, states,
-- gradients, those of initial states too, steps.
--   flin compositions.lua        a sample
--   flin compositions.lua all    all of them: a minute
--   flin compositions.lua at=N   that one
--   flin compositions.lua [all | at=N] cuda    on a GPU, in bfloat16; then how
-- many of them it runs without tensor cores, or a part of them, and why
local flin = require "flin"
local count = require "support.count"
local compositions = require "support.compositions"
local with = require "support.with"

local on_gpu <const> = arg[#arg] == "cuda"
local LIMIT <const> = 1e-4
local every <const> = arg[1] == "all" and 1 or on_gpu and 199 or 11
local only = arg[1] and tonumber(arg[1]:match "^at=(%d+)$")

local function wanted(n)
  return not only and n % every == 0 or n == only
end

-- Keys that are not of norm 1 make what erases grow by each token: few.
local cases <const> = {
  { T = 19, K = 6, V = 5, H = 1, HV = 2, chunk = 8,
    cu_seqlens = { 0, 0, 7, 19 } },
  { T = 13, K = 4, V = 6, B = 2, H = 1 },
}

-- Sequences that end within a chunk, and within its first tokens.
local gpu_case <const> = {
  T = 73, K = 64, V = 64, H = 1, HV = 2, dtype = "bfloat16",
  cu_seqlens = { 0, 0, 3, 70, 73 },
}

local function is_constant(v, what)
  for _, input in ipairs(v.inputs) do
    if what == "d_" .. input.name then return not input.axes:find "t" end
  end
  return false
end

-- A constant's gradient is one number for all tokens, which may cancel in one
-- draw: it is what it is off by in the best of three. What is no number is
-- text: a note, or what is wrong with the call (keys that make a state grow).
local function judge(title, v, case)
  local found = v:check(case)
  for what, off in pairs(found) do
    if what == "worst" or type(off) ~= "number" then off = 0 end
    for _ = 1, 2 do
      if is_constant(v, what) and off > LIMIT then
        case.seed = case.seed + 1000
        off = math.min(off, v:check(case)[what])
      end
    end
    count.expect(off <= LIMIT, "%s, %d tokens: %s is off by %.1e", title,
                 case.T, what, off)
  end
end

-- ---- on a GPU ----

-- What rounding to 16 bits amplifies the host's own float32 run shows: half of
-- what it is off by, as if it rounded so; no more than a tenth.
local function judge_rounded(title, v, case)
  local found, fine = v:check(case), nil
  count.expect(not found.trouble or found.trouble:find "unit length",
               "%s: %s", title, found.trouble)
  for what, off in pairs(found.trouble and {} or found) do
    local limit = what:find "^d_" and 8e-3 or 4e-3
    if type(off) == "number" and what ~= "worst" and not (off <= limit) then
      fine = fine or v:check(with(case, { backend = "cpu",
                                          dtype = "float32" }))
      limit = math.max(limit, math.min(0.1, 2^15 * fine[what]))
    end
    count.expect(type(off) ~= "number" or what == "worst" or off <= limit,
                 "%s: %s is off by %.1e", title, what, off)
  end
end

-- The first kernel without roles, and what keeps it from having some.
local function why_not(v)
  local plan = v:plan { K = 64, V = 64, backward = true, machine = "h200" }
  if plan.note then return plan.note end
  for _, kernel in ipairs(plan.kernels) do
    if kernel.why then return kernel.name .. ": " .. kernel.why end
  end
end

local all, others = 0, 0
local function check_on_gpu(title, v, n)
  local case = with(gpu_case, { seed = n, backend = "cuda" })
  local ok, why = pcall(judge_rounded, n .. ", " .. title, v, case)
  count.expect(ok, "%d, %s: %s", n, title, why)
  all, why = all + 1, why_not(v)
  if why then
    others = others + 1
    print(("%d, %s: %s"):format(n, title, why))
  end
end

if on_gpu then
  compositions(wanted, check_on_gpu)
  print(("%d compositions, %d not on tensor cores alone"):format(all, others))
  count.finish()
end

compositions(wanted, function (title, v, n)
  for seed, case in ipairs(cases) do
    local at = { seed = seed + n, backend = "cpu" }
    for key, x in pairs(case) do at[key] = x end
    local ok, why = pcall(judge, n .. ", " .. title, v, at)
    count.expect(ok, "%d, %s: %s", n, title, why)
  end
end)

-- What is left of a first state after many tokens is less than float32 holds:
-- so is its gradient, and that is no error.
local stabilised = flin.attention {
  decay = flin.decay.max_stabilized {}, features = flin.feature_map.l2norm {},
}
for seed = 1, 2 do
  judge("stabilised", stabilised, { T = 140, H = 1, K = 64, V = 2,
                                    seed = seed, backend = "cpu" })
end
count.finish()
