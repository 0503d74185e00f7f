-- Masks that nobody has written: of one direction or both, in pieces that
-- comparisons of positions, distances and remainders cut out, each a product of
-- rows, columns, decays, distances and tokens before. What is accepted is the
-- plain sum over pairs, in float64, in chunks, with its gradients; what is
-- refused couples i and j, is no number far out, has too many products or looks
-- back at too many values, or is 0.
--   flin mask_random.lua [FIRST [LAST [cuda]]]      seeds
local flin = require "flin"
local count = require "support.count"
local masks = require "support.masks"
local exp, abs, cos = flin.exp, flin.abs, flin.cos

local first <const> = tonumber(arg[1] or 1)
local last <const> = tonumber(arg[2] or first + 11)
local backend <const> = arg[3]

local seed
local function pick(n)
  seed = (seed * 6364136223846793005 + 1442695040888963407)
  return (seed >> 33) % n + 1
end

-- Each makes a function of i, j and p; `far`: it is asked about pairs at any
-- distance, where a weight has to factor.
local weights <const> = {
  function () return function (_, j, p) return p.b[j] end end,
  function () return function (i, _, p) return p.a[i] end end,
  function () return function (i, j, p)
    local d = p.g_cumsum[i] - p.g_cumsum[j]
    return exp(i < j and -d or d)
  end end,
  function () return function (i, j, p)
    if i < j then return exp(p.h_cumsum[j] - p.h_cumsum[i]) end
    return p.a[i] * exp(p.g_cumsum[i] - p.g_cumsum[j])
  end end,
  function ()
    local c = pick(5) / 10
    return function (i, j) return exp(-c * abs(i - j)) end
  end,
  function ()
    local c = pick(20) / 10
    return function (i, j) return cos(c * (i - j)) end
  end,
  function ()
    local n = pick(3)
    return function (_, j, p) return p.x[j - n] end
  end,
  function ()
    local n = pick(3)
    return function (i, _, p) return p.x[i - n] end
  end,
  function () return function (i, j, p)   -- sums of one sign grow with i - j
    return exp(-abs(p.g_cumsum[i] - p.g_cumsum[j]))
  end end,
  function () return function (i, j, p)
    local d = p.h_cumsum[i] - p.h_cumsum[j] - 0.1 * (i - j)
    return p.b[j] * exp(flin.min(d, -d))
  end end,
  function () return function (_, j) return 1 / (1 + j) end end,
  function () return function (i) return exp(-0.05 * i) end end,
}

local near <const> = {
  function () return function (i, j, p)
    return p.a[i] / (1 + abs(i - j)) * p.b[j]
  end end,
  function () return function (i, j, p) return cos(p.a[i] + p.b[j]) end end,
}

local function product(far)
  local list = {}
  for n = 1, pick(2) do
    local from = not far and pick(3) == 1 and near or weights
    list[n] = from[pick(#from)]()
  end
  if #list == 1 then return list[1] end
  return function (i, j, p) return list[1](i, j, p) * list[2](i, j, p) end
end

local function nothing() return 0 end

-- A piece, or two that a comparison parts.
local function pieces(depth, far)
  local kind = depth > 0 and pick(9) or 7
  if kind == 7 then return pick(6) == 1 and nothing or product(far) end
  -- Of up to 12 tokens, which chains keep, or more, which rings do.
  local n, inside = pick(pick(3) == 1 and 40 or 12), nil
  if kind <= 2 then                     -- a band, or nothing, and what is
                                        -- beyond
    inside = pick(4) == 1 and nothing or pieces(depth - 1, false)
    local outside = pick(2) == 1 and nothing or pieces(depth - 1, far)
    return function (i, j, p)
      if abs(i - j) < n then return inside(i, j, p) end
      return outside(i, j, p)
    end
  end
  inside = pieces(depth - 1, far)
  local outside = pieces(depth - 1, far)
  if kind > 7 then                      -- blocks: others, or its own
    local shift = pick(3) - 1
    return function (i, j, p)
      local a, b = (i + shift) // n, j // n
      if kind == 8 and a - b > 1 or kind == 9 and a == b then
        return outside(i, j, p)
      end
      return inside(i, j, p)
    end
  end
  local remainder = 1 + pick(3)
  local holds = kind == 3 and function (_, j) return j < n end
             or kind == 4 and function (i) return i < n end
             or kind == 5 and function (i, j) return (i - j) % remainder > 0 end
             or function (_, j) return j % remainder > 0 end
  return function (i, j, p)
    if holds(i, j) then return inside(i, j, p) end
    return outside(i, j, p)
  end
end

local REFUSALS <const> = { "mask does not factor: ",
  "the mask is not what its trace says: on numbers, .*nan",
  "the mask is a sum of more than %d+ products",
  "the mask is zero everywhere", "more than %d+ states" }

local function is_refusal(why)
  for _, pattern in ipairs(REFUSALS) do
    if why:find(pattern) then return true end
  end
  return false
end

local accepted = 0
for n = first, last do
  seed = n
  local whole = pick(3) > 1
  local below, above = pieces(2, true), pieces(2, true)
  local function mask(i, j, p)
    if i < j then
      if not whole then return 0 end
      return above(i, j, p)
    end
    return below(i, j, p)
  end
  local def = { mask = mask, name = "m" .. n }
  if whole then def.causal = false end
  local ok, v = pcall(flin.variant, def)
  -- What starts late in many products has too many states for gradients, of
  -- which the direction from the last token on is one.
  local _, why = pcall(ok and v.check or type, v, { T = 2, K = 1, V = 1 })
  local carries = tostring(why):find "its gradient carries .*, and may carry"
  if ok and not (carries and whole) then
    accepted = accepted + 1
    masks.same_as_sum("seed " .. n, mask, { causal = def.causal }, 5e-5,
                      carries)
    if backend then
      local e = v:check { T = 70, H = 1, K = 16, V = 16, backend = backend,
                          backward = not carries }
      count.check("seed " .. n .. " there", e.worst <= 1e-4, e)
    end
  elseif not ok then
    why = tostring(v):match "[^\n]*"
    count.check("seed " .. n, is_refusal(why), why)
  end
end

count.check("some are accepted", accepted * 3 >= last - first, accepted)
print(("%d of %d accepted"):format(accepted, last - first + 1))
count.finish()
