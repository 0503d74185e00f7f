-- What scales a state by numbers of any sign, and what is no matrix of one key
-- axis, held to the float64 step as the standard library is: any chunk, borders
-- of chunks, packed sequences, grouped heads, gradients, decoding, threads.
local flin = require "flin"
local count = require "support.count"
local expect <const> = count.expect
local dot, outer, tanh = flin.dot, flin.outer, flin.tanh

local LIMIT <const> = { float32 = 2e-5, bfloat16 = 8e-3 }
local cases = {
  { B = 1, T = 1, H = 1 }, { B = 2, T = 0, H = 1 },
  { B = 1, T = 17, H = 2, chunk = 16 }, { B = 2, T = 31, H = 1, chunk = 32 },
  { B = 1, T = 63, H = 2, HV = 4, chunk = 16 },
  { B = 1, T = 40, H = 2, chunk = 16, cu_seqlens = { 0, 5, 5, 12, 40 } },
  { B = 1, T = 62, H = 2, chunk = 64, threads = 3 },
  { B = 1, T = 33, H = 1, chunk = 16, dtype = "bfloat16" },
}

-- A delta rule under a decay of each key, of any sign, now and then 0.
local function delta()
  return flin.variant {
    name = "signed_delta", state = { S = "k v" },
    input = { q = "t k", k = "t k : unit_norm", v = "t v", a = "t k",
              beta = "t : unit" },
    step = function (x, s)
      local S = flin.where(flin.lt(x.a, -1), 0, tanh(x.a)) * s.S
      S = S + outer(x.beta * x.k, x.v - dot(x.k, S))
      return { S = S }, dot(x.q, S)
    end,
  }
end

-- Oscillators of each key that are driven by what they miss.
local function driven()
  return flin.variant {
    name = "driven", state = { S = "k v", M = "k v" },
    input = { q = "t k", k = "t k : unit_norm", v = "t v", w = "t k", d = "k" },
    step = function (x, s)
      local c, d = 0.7 * flin.cos(x.w), 0.7 * flin.sin(x.d)
      local S = c * s.S - d * s.M + outer(x.k, x.v - dot(x.k, s.M))
      local M = d * s.S + c * s.M
      return { S = S, M = M }, dot(x.q, S) + dot(x.k, M)
    end,
  }
end

local function from_paper(name)
  return dofile("tests/variants/" .. name .. ".lua").variant(flin)
end

local variants = { delta(), driven() }
for _, name in ipairs { "based", "linoss", "log_linear", "longhorn", "mesa_net",
                        "s4d", "s6" } do
  variants[#variants + 1] = from_paper(name)
end

-- The axes of the variant that an input brings.
local function sizes(v, case)
  local all = {}
  for key, value in pairs(case) do all[key] = value end
  for axis, n in pairs { K = 12, V = 20, N = 12, M = 5,
                         L = v.name == "log_linear" and 6 or nil } do
    for _, input in ipairs(v.inputs) do
      if input.axes:find("%f[%w]" .. axis:lower() .. "%f[%W]") then
        all[axis] = n
      end
    end
  end
  return all
end

for _, v in ipairs(variants) do
  expect(v.form:find "runs in chunks", "%s: %s", v.name, v.form)
  for seed, case in ipairs(cases) do
    local all = sizes(v, case)
    if v.name == "log_linear" then all.T = math.min(all.T, 31) end
    if all.cu_seqlens then all.T = 40 end
    all.seed = seed
    local ok, found = pcall(v.check, v, all)
    expect(ok, "%s, case %d: %s", v.name, seed, found)
    expect(ok and not found.note, "%s, case %d: %s", v.name, seed,
           ok and found.note)
    for what, off in pairs(ok and found or {}) do
      if type(off) == "number" then
        expect(off <= LIMIT[case.dtype or "float32"],
               "%s, case %d: %s is off by %.1e", v.name, seed, what, off)
      end
    end
  end
end
count.finish()
