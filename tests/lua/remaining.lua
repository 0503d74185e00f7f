-- How many kernels of the standard library's training have no roles,
-- by type, size of K and V, and GPU: what is not listed here has none such, nor
-- have sizes that are no whole 16 bytes, or odd.
--   flin remaining.lua [N]     every Nth case (37); 1: all of them
local flin = require "flin"
local count = require "support.count"
local expect <const> = count.expect

-- Of larger sizes where blocks have the least room.
local SIZES <const> = {
  { 128, { "bfloat16", "float16" },
    { "sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120a" } },
  { 256, { "bfloat16" }, { "sm_86" } },
}
local LEFT <const> = { [256] = { momentum_deltanet = 2, precond_mamba3 = 5,
                                 titans = 2 } }

local OTHERS <const> = { { 20, 36 }, { 33, 21 }, { 100, 100 } }

-- How many there are, and how many have none.
local function kernels(v, arch, dtype, K, V)
  local text = v:source("cuda", { arch = arch, dtype = dtype, backward = true,
                                  K = K, V = V })
  return select(2, text:gsub("__launch_bounds__", "")),
         select(2, text:gsub("__launch_bounds__%(THREADS", ""))
end

local every <const> = tonumber(arg[1]) or 37
local at, all, left = 0, 0, 0
local function look(name, arch, dtype, K, V, known)
  at = at + 1
  if at % every ~= 0 then return end
  local n, plain = kernels(flin.stdlib[name], arch, dtype, K, V)
  all, left = all + n, left + plain
  expect(plain == (known and known[name] or 0), "%s, %d x %d, %s, %s: %d of %d"
         .. " kernels have no roles", name, K, V, arch, dtype, plain, n)
end

for _, case in ipairs(SIZES) do
  local size <const>, dtypes <const>, archs <const> = table.unpack(case)
  for _, dtype in ipairs(dtypes) do
    for _, arch in ipairs(archs) do
      for _, name in ipairs(flin.stdlib_names) do
        look(name, arch, dtype, size, size, LEFT[size])
      end
    end
  end
end
for _, size in ipairs(OTHERS) do
  for _, arch in ipairs { "sm_80", "sm_86", "sm_90a" } do
    for _, name in ipairs(flin.stdlib_names) do
      look(name, arch, "bfloat16", size[1], size[2])
    end
  end
end
print(("%d of %d kernels have no roles"):format(left, all))
count.finish()
