-- A plan for every machine that there is a row of, K = V = 256, too; where
-- NVRTC is, kernels that compile for it and fit.
local flin = require "flin"
local count = require "support.count"
local expect <const> = count.expect

-- As NVIDIA's programming guide has them: bytes that a block may share.
local GPUS <const> = {
  h200 = { "sm_90a", 232448 }, h100 = { "sm_90a", 232448 },
  b200 = { "sm_100a", 232448 }, a100 = { "sm_80", 166912 },
  a10 = { "sm_86", 101376 }, l40s = { "sm_89", 101376 },
  rtx4090 = { "sm_89", 101376 }, rtx5090 = { "sm_120", 101376 },
}

local _, message = pcall(flin.stdlib.gla.plan, flin.stdlib.gla,
                         { machine = "none" })
local names = tostring(message):match "machines: ([^\n]*)"
local seen = 0
for name in names:gmatch "[%w]+" do
  seen = seen + 1
  expect(name == "cpu" or GPUS[name], "%s: a row that no test knows", name)
  for _, size in ipairs { 128, 256 } do
    local p = flin.stdlib.gated_deltanet:plan {
      machine = name, K = size, V = size, backward = true }
    expect(p.machine == name and #p.kernels > 0 and p.predicted > 0,
           "%s, K = %d", name, size)
  end
end
expect(seen == 9, "%d machines", seen)

-- Hopper's schedules take kernels that are larger than the model has it; on
-- other machines chunks are as they fit, and where a plan's kernels fit, but
-- have no schedules there, as those have them.
local function chunk(name, machine, size)
  return flin.stdlib[name]:plan { machine = machine, K = size or 128,
                                  V = size or 128, backward = true }.chunk
end
for name, machine in pairs { momentum_deltanet = "l40s", kda = "l40s" } do
  expect(chunk(name, "h200") == 64 and chunk(name, machine) < 64,
         "%s: chunks of %d and %d tokens", name, chunk(name, "h200"),
         chunk(name, machine))
end

-- Kernels that are too large are cut there before chunks have half the tokens.
for _, name in ipairs { "gla", "kda" } do
  expect(chunk(name, "h200", 256) == 64 and chunk(name, "l40s", 256) < 64,
         "%s, K = V = 256: chunks of %d and %d tokens", name,
         chunk(name, "h200", 256), chunk(name, "l40s", 256))
end

local compiles = pcall(flin.stdlib.linear.compile, flin.stdlib.linear)
local done = {}
for name, gpu in pairs(compiles and GPUS or {}) do
  local arch <const>, room <const> = table.unpack(gpu)
  if not done[arch] then
    done[arch] = true
    local r = flin.stdlib.simple_gla:compile {
      arch = arch, K = 128, V = 128, backward = arch == "sm_89" }
    -- bytes of a few registers: a walk with a warpgroup ahead has 128 a thread
    -- where they are not dealt
    expect(r.shared <= room and r.spills <= 128, "%s: %d bytes, %d spills",
           name, r.shared, r.spills)
  end
end
if not compiles then
  print "skip: no NVRTC, so nothing is compiled"
end
count.finish()
