-- What is carried over many tokens: a state keeps its value unless it is
-- declared an angle; a sum loses nothing on the way, nor what sin and cos see
-- of it.
local flin = require "flin"
local dot, outer, cos, sin = flin.dot, flin.outer, flin.cos, flin.sin

local count = require "support.count"
local expect <const> = count.expect

local TURN <const> = 2 * math.pi

local function relative(a, b)
  local off = a:to "float64" - b:to "float64"
  return ((off * off):sum() / math.max((b * b):sum(), 1e-30))^0.5
end

-- Modulo 2 pi.
local function turned_off(a, b)
  return (a:to "float64" - b:to "float64"):map(function (x)
    return x - TURN * math.floor(x / TURN + 0.5)
  end):maxabs()
end

-- A count that y does not read, for its final value.
do
  local v = flin.variant {
    name = "counted", input = { q = "t k", k = "t k", v = "t v" },
    state = { S = "k v", n = "" },
    step = function (x, s)
      local S = 0.9 * s.S + outer(x.k, x.v)
      return { S = S, n = s.n + 1 }, dot(x.q, S)
    end,
  }
  for _, T in ipairs { 20, 1000 } do
    local inputs = v:random { B = 1, T = T, H = 1, K = 4, V = 4 }
    for _, method in ipairs { "reference", "forward" } do
      local _, left = v[method](v, inputs)
      expect(left.n:sum() == T, "%s: n is %s after %d tokens", method,
             left.n:sum(), T)
    end
  end
end

-- Sums, in every way to write one; w and u are positive, so they grow.
local sums = {
  ["phi + w"] = function (x, phi) return phi + x.w end,
  ["phi + w + u"] = function (x, phi) return phi + x.w + x.u end,
  ["w + (phi + u)"] = function (x, phi) return x.w + (phi + x.u) end,
  ["phi - w - u"] = function (x, phi) return phi - x.w - x.u end,
  ["phi + 1 - w"] = function (x, phi) return phi + 1 - x.w end,
  ["phi + w u + c"] = function (x, phi) return phi + x.w * x.u + x.c end,
  ["phi + where"] = function (x, phi)
    return flin.where(flin.lt(x.w, 0.7), phi + x.u, phi + 2 * x.u)
  end,
}
-- What y reads of it; whole: no whole turns.
local readers = {
  cosine = { whole = true, function (x, now, before) return cos(now) end },
  before = { whole = true, function (x, now, before)
    return cos(before) * sin(now)
  end },
  ["three times"] = { whole = true, function (x, now, before)
    return sin(3 * now - before + x.w)
  end },
  half = { function (x, now, before) return cos(0.5 * now) end },
  ["and its value"] = { function (x, now, before)
    return sin(now) + 1e-4 * now
  end },
}
local LONG <const> = 20000
for sum, advance in pairs(sums) do
  for name, reader in pairs(readers) do
    for _, declared in ipairs { false, reader.whole } do
      local function step(x, s)
        local phi = advance(x, s.phi)
        local S = 0.9 * s.S + outer(x.k * reader[1](x, phi, s.phi), x.v)
        local y = dot(x.q, S)
        if sum ~= "phi + w u + c" then y = y + x.c end
        if not (sum:find "u" or sum:find "where") then y = y + x.u end
        return { S = S, phi = phi }, y
      end
      local what = ("%s, %s%s"):format(sum, name,
                                       declared and ", declared" or "")
      local v = flin.variant {
        name = "sum", input = { q = "t k", k = "t k", v = "t v", c = "",
                                w = "t : unit", u = "t : positive" },
        state = { S = "k v", phi = declared and ": angle" or "" },
        step = step,
      }
      local inputs = v:random { B = 1, T = LONG, H = 1, K = 4, V = 2 }
      inputs.initial_state = { S = flin.randn { 1, 1, 4, 2 },
                               phi = flin.full({ 1, 1 }, 2.5) }
      local want, left = v:reference(inputs)
      local got, ends = v:forward(inputs)
      -- half of a sum of thousands is rounded in float32 before cos takes it
      local limit = name == "half" and 2e-3 or 1e-5
      local off = relative(got, want)
      expect(off <= limit, "%s: y is off by %.1e", what, off)
      if declared then
        off = turned_off(ends.phi, left.phi)
        expect(off <= 1e-5 and ends.phi:maxabs() <= 3.2,
               "%s: phi ends off by %.1e", what, off)
      else
        off = relative(ends.phi, left.phi)
        expect(off <= 1e-7, "%s: phi ends off by %.1e", what, off)
      end
    end
  end
end

-- Angles that are set anew, mirrored, or of the token alone.
local angles = {
  ["set anew"] = function (x, phi)
    return flin.where(flin.lt(x.w, 0.1), x.u, phi + x.u)
  end,
  mirrored = function (x, phi) return x.u - phi end,
  ["of the token"] = function (x, phi) return 3 * x.u - x.w end,
}
for name, advance in pairs(angles) do
  local v = flin.variant {
    name = "angle", input = { q = "t k", k = "t k", v = "t v", w = "t : unit",
                              u = "t : positive" },
    state = { S = "k v", phi = ": angle" },
    step = function (x, s)
      local phi = advance(x, s.phi)
      local S = 0.9 * s.S + outer(x.k * cos(phi) + x.w, x.v)
      return { S = S, phi = phi }, dot(x.q, S) + sin(s.phi)
    end,
  }
  local found = v:check { B = 2, T = 90, H = 1, HV = 2, K = 4, V = 6,
                          chunk = 16 }
  expect(not found.note, "%s: %s", name, found.note)
  expect(found.worst <= 1e-5, "%s: off by %.1e", name, found.worst)
end

-- A step without a chunk form, token by token.
do
  local v = flin.variant {
    name = "serial",
    input = { q = "t k", k = "t k", v = "t v", w = "t : unit" },
    state = { S = "k v", phi = "", n = "" },
    step = function (x, s)
      local phi, n = s.phi + x.w, s.n + 0.1
      local S = flin.tanh(0.9 * s.S + outer(x.k * cos(phi), x.v))
      return { S = S, phi = phi, n = n }, dot(x.q, S) + 1e-3 * n
    end,
  }
  local inputs = v:random { B = 1, T = LONG, H = 1, K = 4, V = 2 }
  local want, left = v:reference(inputs)
  local got, ends = v:forward(inputs)
  local off = relative(got, want)
  expect(off <= 1e-4, "token by token: y is off by %.1e", off)
  for _, name in ipairs { "phi", "n" } do
    off = relative(ends[name], left[name])
    expect(off <= 1e-7, "token by token: %s ends off by %.1e", name, off)
  end
  local found = v:check { B = 2, T = 150, H = 1, K = 4, V = 4 }
  for _, what in ipairs { "y", "state", "d_w", "d_k", "d_v" } do
    expect(found[what] <= 1e-4, "token by token: %s is off by %.1e", what,
           found[what])
  end
end

count.finish()
