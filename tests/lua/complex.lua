-- States that are the real and the imaginary part of one, in every way that
-- people write them, and some that are none: all of v:check, by the float64
-- step. Which ones turn is seen in the chunk form: matscan multiplies up what
-- nothing is known of.
--   flin complex.lua [cuda]
local flin = require "flin"
local exp, dot, outer, tanh = flin.exp, flin.dot, flin.outer, flin.tanh
local cos, sin = flin.cos, flin.sin

local count = require "support.count"
local expect <const> = count.expect
local backend <const> = arg[1]

local SIZES <const> = {
  { B = 2, T = 45, H = 1, HV = 2, chunk = 16 },
  { B = 1, H = 2, chunk = 32, cu_seqlens = { 0, 0, 33, 60 } },
}

-- more: inputs beside q, k, v; what a token makes of both parts.
local function matrices(more, next, read)
  local input = { q = "t k", k = "t k", v = "t v" }
  for name, axes in pairs(more) do input[name] = axes end
  return { input = input, state = { re = "k v", im = "k v" },
           step = function (x, s)
    local re, im = next(x, s.re, s.im)
    re = re + outer(x.k, x.v)
    return { re = re, im = im }, read and read(x, re, im) or dot(x.q, re)
  end }
end

-- Scaled by a and turned by w.
local function turned(a, w, re, im)
  local c, d = cos(w), sin(w)
  return a * (c * re - d * im), a * (d * re + c * im)
end

local turns <const> = {
  gate = matrices({ g = "t : log_decay", w = "t" }, function (x, re, im)
    return turned(exp(x.g), x.w, re, im)
  end),
  ["no scale"] = matrices({ w = "t" }, function (x, re, im)
    return turned(1, x.w, re, im)
  end),
  ["a head's angle"] = matrices({ a = "t", w = "" }, function (x, re, im)
    return turned(x.a, x.w, re, im)
  end),
  ["scales of any sign, two of them"] = matrices({ a = "t", b = "t", w = "t" },
    function (x, re, im)
      return turned(-0.9 * x.a * tanh(x.b), x.w, re, im)
    end),
  ["the other way"] = matrices({ w = "t" }, function (x, re, im)
    local c, d = 0.95 * cos(x.w), 0.95 * sin(x.w)
    return c * re + d * im, c * im - d * re
  end),
  ["an angle that is computed"] = matrices({ w = "t", u = "t : unit" },
    function (x, re, im)
      local w = 3 * tanh(x.w)
      local c, d = x.u * cos(w), sin(w) * x.u
      return re * c - im * d, im * c + re * d
    end),
  ["both are read, both written"] = matrices(
    { g = "t : log_decay", w = "t", p = "t k", u = "t v" },
    function (x, re, im)
      re, im = turned(exp(x.g), x.w, re, im)
      return re, im + outer(x.p, x.u)
    end, function (x, re, im) return dot(x.q, re) - dot(x.p, im) end),
  ["corrected by what one holds"] = matrices(
    { g = "t : log_decay", w = "t", p = "t k : unit_norm", u = "t v",
      b = "t : unit" },
    function (x, re, im)
      re, im = turned(exp(x.g), x.w, re, im)
      local miss = x.u - dot(x.p, re)
      return re + outer(x.b * x.p, miss), im + outer(0.5 * x.p, miss)
    end),
  ["a third beside them"] = {
    input = { q = "t k", k = "t k", v = "t v", w = "t", a = "t : unit" },
    state = { re = "k v", im = "k v", S = "k v" },
    step = function (x, s)
      local re, im = turned(x.a, x.w, s.re, s.im)
      re = re + outer(x.k, x.v)
      local S = 0.9 * s.S + im
      return { re = re, im = im, S = S }, dot(x.q, S)
    end },
  ["of each key"] = matrices({ a = "k : unit", w = "k" }, function (x, re, im)
    return turned(x.a, x.w, re, im)
  end),
  ["of a token's keys"] = matrices({ a = "t k : log_decay", w = "t k" },
    function (x, re, im) return turned(exp(x.a), x.w, re, im) end),
  ["of keys, corrected by what one holds"] = matrices(
    { g = "t k : log_decay", w = "t k", p = "t k : unit_norm", u = "t v",
      b = "t : unit" },
    function (x, re, im)
      re, im = turned(exp(x.g), x.w, re, im)
      local miss = x.u - dot(x.p, re)
      return re + outer(x.b * x.p, miss), im + outer(0.5 * x.p, miss)
    end, function (x, re, im) return dot(x.q, re) - dot(x.p, im) end),
  ["of keys, corrected by what was there"] = {
    input = { q = "t k", k = "t k : unit_norm", v = "t v", g = "k : log_decay",
              w = "t k", b = "t : unit" },
    state = { re = "k v", im = "k v" },
    step = function (x, s)
      local re, im = turned(exp(x.g), x.w, s.re, s.im)
      re = re + outer(x.b * x.k, x.v - dot(x.k, s.im))
      return { re = re, im = im }, dot(x.q, re) - dot(x.q, s.re)
    end },
  ["of keys, read along values"] = matrices(
    { g = "t k : log_decay", w = "k", u = "t v" },
    function (x, re, im) return turned(exp(x.g), x.w, re, im) end,
    function (x, re, im) return dot(x.u, im) + dot(x.v, re) * x.q end),
  ["of keys, written twice"] = matrices(
    { a = "t k : unit", w = "t k", p = "t k", u = "t v" },
    function (x, re, im)
      re, im = turned(x.a, x.w, re, im)
      return re, im + outer(x.p, x.u)
    end),
  ["keys turned by a number each way"] = matrices(
    { g = "t : log_decay", w = "k" },
    function (x, re, im)
      local c, d = exp(x.g) * cos(x.w), exp(x.g) * sin(x.w)
      return c * re + d * im, c * im - d * re
    end),
  ["of each entry"] = matrices({ a = "k v : unit", w = "k" },
    function (x, re, im) return turned(x.a, x.w, re, im) end),
  vectors = { input = { v = "t v", a = "v : unit", w = "v" },
              state = { re = "v", im = "v" }, step = function (x, s)
    local re, im = turned(x.a, x.w, s.re, s.im)
    re = re + x.v
    return { re = re, im = im }, re - 0.5 * im
  end },
  numbers = { input = { u = "t", a = "t", w = "t" },
              state = { re = "", im = "" }, step = function (x, s)
    local re, im = turned(x.a, x.w, s.re, s.im)
    return { re = re + x.u, im = im }, re * im
  end },
}

local others <const> = {
  ["not the same scale"] = matrices({ a = "t", b = "t", w = "t" },
    function (x, re, im)
      local c, d = cos(x.w), sin(x.w)
      return x.a * (c * re - d * im), x.b * (d * re + c * im)
    end),
  ["not the same angle"] = matrices({ w = "t", u = "t" }, function (x, re, im)
    local c, d = 0.8 * cos(x.w), 0.8 * sin(x.u)
    return c * re - d * im, d * re + c * im
  end),
  ["both signs alike"] = matrices({ w = "t" }, function (x, re, im)
    local c, d = 0.6 * cos(x.w), 0.6 * sin(x.w)
    return c * re + d * im, d * re + c * im
  end),
  ["a sine half as large"] = matrices({ w = "t" }, function (x, re, im)
    local c, d = cos(x.w), 0.5 * sin(x.w)
    return 0.9 * (c * re - d * im), 0.9 * (d * re + c * im)
  end),
  ["numbers that are no angle's"] = matrices({ a = "t : unit", b = "t" },
    function (x, re, im)
      local c, d = 0.6 * x.a, 0.3 * tanh(x.b)
      return c * re - d * im, d * re + c * im
    end),
}

local turn = 0
local function check(name, definition, turning)
  definition.name = name
  local v = flin.variant(definition)
  local form = v:dump("C", { chunk = 16 })
  expect((form:find " matscan " == nil) == turning, "%s: %s", name,
         turning and "multiplied up" or "taken for an angle's")
  local at, axes = { backend = backend }, ""
  for _, input in ipairs(v.inputs) do axes = axes .. input.axes .. " " end
  at.K, at.V = axes:find "k" and 12 or nil, axes:find "v" and 9 or nil
  turn = turn + 1
  for key, x in pairs(SIZES[turn % 2 + 1]) do at[key] = x end
  for what, off in pairs(v:check(at)) do
    local most = (what:find "^d_" or what == "worst") and 1e-4 or 1e-5
    expect(type(off) ~= "number" or off <= most, "%s: %s is off by %s", name,
           what, off)
  end
end

for name, definition in pairs(turns) do check(name, definition, true) end
for name, definition in pairs(others) do check(name, definition, false) end
count.finish()
