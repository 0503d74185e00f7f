-- Every variant of the standard library, and masks of every kind that is a
-- scan, against their float64 steps: the chunk form (y and final state) and
-- decoding token by token, over boundary shapes, chunk sizes, grouped heads and
-- packed sequences.
local flin = require "flin"

-- float32 rounds at 6e-8 a sum, bfloat16 at 1.7e-3 an output.
local TOLERANCE <const> = { float32 = 1e-5, bfloat16 = 4e-3 }

-- Every T around the borders of every chunk size; K ~= V.
local cases = {}
for _, chunk in ipairs { 16, 32, 64, 128, 256 } do
  for _, T in ipairs { 15, 16, 17, 63, 64, 65, 100, 257 } do
    cases[#cases + 1] = { B = 1, T = T, H = 1, K = 16, V = 20, chunk = chunk }
  end
end

-- The rest: no tokens, one; odd sizes and large ones; several of a batch;
-- fewer q and k heads than v heads; sequences that are empty or end anywhere.
for _, case in ipairs {
  { B = 2, T = 0,   H = 1, K = 16, V = 16, chunk = 16 },
  { B = 3, T = 1,   H = 2, K = 16, V = 20, chunk = 64 },
  { B = 3, T = 15,  H = 2, K = 20, V = 16, chunk = 16 },
  { B = 2, T = 17,  H = 2, HV = 4, K = 16, V = 33, chunk = 16 },
  { B = 1, T = 63,  H = 1, K = 33, V = 16, chunk = 64 },
  { B = 1, T = 64,  H = 1, HV = 2, K = 16, V = 16, chunk = 64 },
  { B = 2, T = 65,  H = 1, K = 20, V = 17, chunk = 32 },
  { B = 1, T = 100, H = 1, K = 64, V = 20, chunk = 64 },
  { B = 1, T = 70,  H = 1, K = 128, V = 64, chunk = 64 },
  { B = 1, T = 100, H = 3, HV = 6, K = 16, V = 64, chunk = 128 },
  { B = 1, T = 40,  H = 2, K = 16, V = 16, chunk = 16,
    cu_seqlens = { 0, 5, 5, 12, 40 } },
  { B = 1, T = 130, H = 1, HV = 2, K = 20, V = 16, chunk = 64,
    cu_seqlens = { 0, 0, 64, 65, 130, 130 } },
  { B = 1, T = 70,  H = 2, K = 16, V = 20, chunk = 64, dtype = "bfloat16" },
  { B = 2, T = 33,  H = 1, K = 64, V = 64, chunk = 16, dtype = "bfloat16" },
  { B = 1, T = 257, H = 1, K = 32, V = 16, chunk = 128, dtype = "bfloat16" },
} do
  cases[#cases + 1] = case
end

local function case_text(case)
  local words = {}
  for _, name in ipairs { "B", "T", "H", "HV", "K", "V", "chunk", "dtype" } do
    if case[name] then words[#words + 1] = name .. "=" .. case[name] end
  end
  if case.cu_seqlens then
    words[#words + 1] = "cu_seqlens=" .. table.concat(case.cu_seqlens, ",")
  end
  return table.concat(words, " ")
end

local count = require "support.count"
local expect <const> = count.expect

-- A long sequence is as exact as a short one: sums go on in double; unless the
-- state grows with it, as that of free a and b may.
local function check_long(name, variant)
  local long = { B = 1, T = 16384, H = 1, K = 2, V = 2, backward = false }
  local found = variant:check(long)
  if found.trouble and found.trouble:find " grows: " then return end
  for _, what in ipairs { "y", "state" } do
    expect(found[what] <= TOLERANCE.float32,
           "%s: %s is off by %.1e after %d tokens", name, what,
           found[what], long.T)
  end
end

local variants = {}
for name, variant in pairs(flin.stdlib) do variants[name] = variant end
local named = 0
for _ in pairs(variants) do named = named + 1 end
expect(named == #flin.stdlib_names, "%d variants", named)
for name, variant in pairs(require "support.masked") do
  variants[name] = variant
end

for name, variant in pairs(variants) do
  check_long(name, variant)
  for seed, case in ipairs(cases) do
    case.seed = seed
    case.backward = false               -- backward.lua has the gradients
    local limit = TOLERANCE[case.dtype or "float32"]
    local ok, found = pcall(variant.check, variant, case)
    if not ok then
      expect(false, "%s %s: %s", name, case_text(case), found)
    else
      expect(not found.note, "%s %s: no chunk form: %s", name,
             case_text(case), found.note)
      for _, what in ipairs { "y", "state", "step" } do
        expect(found[what] <= limit, "%s %s: %s is off by %.1e", name,
               case_text(case), what, found[what])
      end
    end
  end
end
count.finish()
