-- Which road each composition of decay, features and transition takes on
-- Hopper, bf16, K = V = 128: how many of those that flin.attention accepts run
-- forward, and forward and backward, on its tensor cores alone.
--   flin roads.lua          a sample, as a test: counts that may only grow
--   flin roads.lua all      all of them; those that do not, and why
local flin = require "flin"
local D, F, T = flin.decay, flin.feature_map, flin.transition

local decays = {
  { "none", D.none {} }, { "fixed", D.fixed {} }, { "gated", D.gated {} },
  { "gated per key", D.gated { per = "key" } },
  { "exponential", D.exponential { data_dependent = false } },
  { "exponential dt", D.exponential {} },
  { "stabilised", D.max_stabilized {} },
  { "gated trapezoidal", D.gated { discretization = "trapezoidal" } },
  { "trapezoidal", D.exponential { discretization = "trapezoidal" } },
}
local features = {
  { "as they are", F.identity {} }, { "relu", F.relu {} },
  { "silu", F.silu {} }, { "elu1", F.elu1 {} }, { "l2norm", F.l2norm {} },
  { "rope", F.rope {} }, { "rope of tokens", F.rope { data_dependent = true } },
  { "exp", F.map(flin.exp) }, { "taylor", F.taylor {} },
}
local transitions = {
  { "sum", T.one_step_gd {} },
  { "sum, 2 ranks", T.one_step_gd { mimo_rank = 2 } },
  { "delta", T.delta_rule {} },
  { "delta, 2 ranks", T.delta_rule { mimo_rank = 2 } },
  { "product of 2", T.delta_product { steps = 2 } }, { "dplr", T.dplr {} },
  { "preconditioned", T.preconditioned_gd {} },
  { "preconditioned, 2 ranks", T.preconditioned_gd { mimo_rank = 2 } },
}

-- What v:plan says of each kernel that would be launched, and what keeps it off
-- tensor cores. nil: no kernels of chunks of 64 tokens, and why.
local function roads_of(v)
  local ok, plan = pcall(v.plan, v, { K = 128, V = 128, backward = true,
                                      machine = "h200", chunk = 64 })
  if not ok then return nil, tostring(plan):match "[^\n]*" end
  if plan.note or not plan.kernels[1].form then
    return nil, "no kernels of a chunk"
  end
  return plan.kernels
end

local every = arg[1] == "all" and 1 or 23
local at, accepted, forward, both, reasons = 0, 0, 0, 0, {}

local function count(title, v)
  local roads, why = roads_of(v)
  local off = roads and 0 or 1
  accepted = accepted + 1
  for i, road in ipairs(roads or {}) do
    if road.why then
      off = off + 1
      why = why or road.name .. ": " .. road.why
    elseif i == 1 then
      forward = forward + 1
    end
  end
  both = both + (off == 0 and 1 or 0)
  if why then
    local kind = why:gsub("%%%d+", "%%"):gsub("%d+ bytes", "bytes")
    reasons[kind] = (reasons[kind] or 0) + 1
    if every == 1 then print(title .. ": " .. why) end
  end
end

for _, d in ipairs(decays) do
  for _, f in ipairs(features) do
    for _, t in ipairs(transitions) do
      at = at + 1
      if at % every == 0 then
        local title = table.concat({ d[1], f[1], t[1] }, ", ")
        local ok, v = pcall(flin.attention, {
          decay = d[2], features = f[2], transition = t[2] })
        if ok then count(title, v) end
      end
    end
  end
end

print(("%d compositions: %d forward, %d both ways on tensor cores"):format(
      accepted, forward, both))
local kinds = {}
for kind in pairs(reasons) do kinds[#kinds + 1] = kind end
table.sort(kinds, function (a, b) return reasons[a] > reasons[b] end)
for i = 1, every == 1 and #kinds or 0 do
  print(("%5d  %s"):format(reasons[kinds[i]], kinds[i]))
end
local failed = 0
if every ~= 1 and (accepted < 19 or forward < 17 or both < 17) then
  print("FAIL fewer compositions on tensor cores than there were")
  failed = 1
end
print(("%d passed, %d failed"):format(1 - failed, failed))
os.exit(failed == 0)
