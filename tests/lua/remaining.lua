-- How many kernels of the standard library's training, K = V = 128, are not
-- from a schedule, by GPU: what is not listed here has none such.
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

-- How many there are, and how many are printed by no schedule.
local function kernels(v, arch, dtype)
  local text = v:source("cuda", { arch = arch, dtype = dtype, backward = true,
                                  K = 128, V = 128 })
  return select(2, text:gsub("__launch_bounds__", "")),
         select(2, text:gsub("__launch_bounds__%(THREADS", ""))
end

local every <const> = tonumber(arg[1]) or 37
local at, all, left = 0, 0, 0
for _, dtype in ipairs { "bfloat16", "float16" } do
  for _, arch in ipairs(ARCHS) do
    for _, name in ipairs(flin.stdlib_names) do
      at = at + 1
      if at % every == 0 then
        local n, plain = kernels(flin.stdlib[name], arch, dtype)
        all, left = all + n, left + plain
        expect(plain == (LEFT[dtype][arch][name] or 0), "%s, %s, %s: %d of %d"
               .. " kernels are from no schedule", name, arch, dtype, plain, n)
      end
    end
  end
end
print(("%d of %d kernels are from no schedule"):format(left, all))
count.finish()
