-- How many kernels of the standard library's training are not from a schedule,
-- by GPU, K = V = 128, and of sizes that are no whole 16 bytes, or odd: what is
-- not listed here has none such.
--   flin remaining.lua [N]     every Nth case (37); 1: all of them
local flin = require "flin"
local count = require "support.count"
local expect <const> = count.expect

local LEFT <const> = {
  bfloat16 = {
    sm_80 = { gsa = 3 },
    sm_86 = { gated_oja = 1, gsa = 2, precond_mamba3 = 5 },
    sm_90a = {},
    sm_100a = {},
    sm_120a = { gsa = 2, precond_mamba3 = 5 },
  },
  float16 = {                           -- abc, lightnet: tiles of float32
    sm_80 = { abc = 4, gsa = 3 },
    sm_86 = { abc = 4, gated_oja = 1, gsa = 2, lightnet = 7,
              precond_mamba3 = 5 },
    sm_90a = { abc = 4 },
    sm_100a = { abc = 4 },
    sm_120a = { abc = 4, gsa = 2, lightnet = 7, precond_mamba3 = 5 },
  },
}
for _, left in pairs(LEFT) do           -- as an sm_86
  left.sm_89 = {}
  for name, n in pairs(left.sm_86) do left.sm_89[name] = n end
end
local ARCHS <const> = { "sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a",
                        "sm_120a" }

-- Of pairs of an odd number of keys the last has no other; a card of 99 KB has
-- no room for the rest.
local OTHERS <const> = {
  { K = 20, V = 36, sm_80 = { gsa = 4 }, sm_86 = { gsa = 4 }, sm_90a = {} },
  { K = 33, V = 21,
    sm_80 = { deltanet_rope = 4, gsa = 4, mamba3 = 5, mamba3_mimo = 6,
              precond_mamba3 = 5, retnet = 4 },
    sm_86 = { deltanet_rope = 4, gsa = 4, mamba3 = 5, mamba3_mimo = 8,
              precond_mamba3 = 5, retnet = 4 },
    sm_90a = { deltanet_rope = 4, mamba3 = 5, mamba3_mimo = 6,
               precond_mamba3 = 5, retnet = 4 } },
  { K = 100, V = 100, sm_80 = { gsa = 5 },
    sm_86 = { gated_oja = 5, gsa = 5, precond_mamba3 = 7 },
    sm_90a = {} },
}

-- How many there are, and how many are printed by no schedule.
local function kernels(v, arch, dtype, K, V)
  local text = v:source("cuda", { arch = arch, dtype = dtype, backward = true,
                                  K = K, V = V })
  return select(2, text:gsub("__launch_bounds__", "")),
         select(2, text:gsub("__launch_bounds__%(THREADS", ""))
end

local every <const> = tonumber(arg[1]) or 37
local at, all, left = 0, 0, 0
local function check(name, arch, dtype, K, V, known)
  at = at + 1
  if at % every > 0 then return end
  local n, plain = kernels(flin.stdlib[name], arch, dtype, K, V)
  all, left = all + n, left + plain
  expect(plain == (known[name] or 0), "%s, %s, %s, %d x %d: %d of %d kernels"
         .. " are from no schedule", name, arch, dtype, K, V, plain, n)
end
for _, dtype in ipairs { "bfloat16", "float16" } do
  for _, arch in ipairs(ARCHS) do
    for _, name in ipairs(flin.stdlib_names) do
      check(name, arch, dtype, 128, 128, LEFT[dtype][arch])
    end
  end
end
for _, size in ipairs(OTHERS) do
  for _, arch in ipairs { "sm_80", "sm_86", "sm_90a" } do
    for _, name in ipairs(flin.stdlib_names) do
      check(name, arch, "bfloat16", size.K, size.V, size[arch])
    end
  end
end
print(("%d of %d kernels are from no schedule"):format(left, all))
count.finish()
