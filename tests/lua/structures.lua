-- Steps of unusual structure: what only a constant carries, sums and means at
-- every place, many inputs, long chains of earlier tokens, names that meet.
-- All of v:check, gradients included, against the float64 step.
local flin = require "flin"
local exp, dot, outer = flin.exp, flin.dot, flin.outer
local sum, mean, sigmoid = flin.sum, flin.mean, flin.sigmoid

local count = require "support.count"
local expect <const> = count.expect

local SIZES <const> = {
  { B = 2, T = 45, H = 1, HV = 2, chunk = 16 },
  { B = 1, H = 2, chunk = 32, cu_seqlens = { 0, 0, 33, 60 } },
}
local LONG <const> = { k = { K = 12 }, v = { V = 9 } }
local turn = 0

-- By one of the two sizes, in turn. Gradients sum what nearly cancels, those of
-- a constant over all tokens.
local function check(name, definition)
  definition.name = name
  local ok, v = pcall(flin.variant, definition)
  expect(ok, "%s: %s", name, v)
  if not ok then return end
  local options, axes = {}, {}
  turn = turn + 1
  for k, x in pairs(SIZES[turn % 2 + 1]) do options[k] = x end
  for _, input in ipairs(v.inputs) do axes[#axes + 1] = input.axes .. " " end
  axes = " " .. table.concat(axes)
  for axis, size in pairs(LONG) do
    if axes:find(" " .. axis .. " ") then
      for k, x in pairs(size) do options[k] = x end
    end
  end
  local found
  ok, found = pcall(v.check, v, options)
  expect(ok, "%s: %s", name, found)
  for what, off in pairs(ok and found or {}) do
    local most = (what:find "^d_" or what == "worst") and 1e-4 or 1e-5
    expect(type(off) ~= "number" or off <= most, "%s: %s is off by %s", name,
           what, off)
  end
end

-- What is written and what is erased, beside gates of each kind.
local keys = {
  ["the same key"] = { "c", function (x) return 0.7 * x.c, x.c end },
  ["the same key, gated"] = { "c b", function (x)
    return 0.5 * sigmoid(x.b) * x.c, x.c
  end },
  ["the same key, written alone"] = { "c k", function (x)
    return x.c, x.k
  end },
  ["the same key, erased alone"] = { "c k", function (x)
    return 0.5 * x.k, x.c
  end },
  ["the key before"] = { "c k", function (x)
    return 0.5 * flin.prev(x.k), x.c
  end },
}
local AXES <const> = { k = "t k : unit_norm", c = "k : unit_norm", b = "t" }
for name, pair in pairs(keys) do
  for _, g in ipairs { "", "k", "t", "t k" } do
    local input = { q = "t k", v = "t v", g = g .. " : log_decay" }
    for one in pair[1]:gmatch "%a" do input[one] = AXES[one] end
    check(name .. " under gates of " .. g, {
      input = input,
      state = { S = "k v" },
      step = function (x, s)
        local S, write, erase = exp(x.g) * s.S, pair[2](x)
        S = S + outer(write, x.v - dot(erase, S))
        return { S = S }, dot(x.q, S)
      end,
    })
  end
end

-- A reduction of an input of the token, or of a constant, at every place.
local places = {
  ["beside y"] = function (x, s, r)
    local S = s.S + outer(x.k, x.v)
    return S, dot(x.q, S) + r
  end,
  ["before y"] = function (x, s, r)
    local S = s.S + outer(x.k, x.v)
    return S, dot(x.q, S) * r
  end,
  ["before the key"] = function (x, s, r)
    local S = 0.9 * s.S + outer(r * x.k, x.v)
    return S, dot(x.q, S)
  end,
  ["beside the value"] = function (x, s, r)
    local S = 0.9 * s.S + outer(x.k, x.v + r)
    return S, dot(x.q, S)
  end,
  ["as the gate"] = function (x, s, r)
    local S = sigmoid(r) * s.S + outer(x.k, x.v)
    return S, dot(x.q, S)
  end,
  ["as the erasing weight"] = function (x, s, r)
    local S = s.S
    S = S + outer(sigmoid(r) * x.k, x.v - dot(x.k, S))
    return S, dot(x.q, S)
  end,
  ["beside the query"] = function (x, s, r)
    local S = 0.9 * s.S + outer(x.k, x.v)
    return S, dot(x.q + r, S)
  end,
  ["in a choice"] = function (x, s, r)
    local S = 0.9 * s.S + outer(x.k, x.v)
    return S, flin.where(flin.lt(r, 0), dot(x.q, S), r)
  end,
}
local reductions = {
  sum = sum, mean = mean,
  squares = function (a) return sum(flin.square(a)) / 9 end,
  norm = function (a) return sum(flin.l2norm(a, "k")) end,
  twice = function (a) return mean(a) * sum(a) end,
  products = function (a)
    return sum(outer(a, flin.rename(a, "k", "d"))) / 20
  end,
  ["all but one"] = function (a) return sum(a) - flin.at(a, "k", 2) end,
}
for place, step in pairs(places) do
  for reduction, f in pairs(reductions) do
    for _, axes in ipairs { "t k", "k" } do
      check(("the %s of %s %s"):format(reduction, axes, place), {
        input = { q = "t k", k = "t k : unit_norm", v = "t v", a = axes },
        state = { S = "k v" },
        step = function (x, s)
          local S, y = step(x, s, f(x.a))
          return { S = S }, y
        end,
      })
    end
  end
end

for reduction, f in pairs(reductions) do
  check(reduction .. " alone", {
    input = { a = "t k" }, step = function (x) return {}, f(x.a) end,
  })
end

-- Reductions of states and of reads.
check("the sum of a state", {
  input = { k = "t k", v = "t v" }, state = { S = "k v" },
  step = function (x, s)
    local S = 0.8 * s.S + outer(x.k, x.v)
    return { S = S }, sum(S, "k") + mean(s.S)
  end,
})
check("the mean of a read", {
  input = { q = "t k", k = "t k", v = "t v" }, state = { S = "k v" },
  step = function (x, s)
    local S = 0.8 * s.S + outer(x.k, x.v)
    return { S = S }, mean(dot(x.q, S))
  end,
})
check("the mean of a vector state", {
  input = { a = "t k" }, state = { n = "k" },
  step = function (x, s)
    local n = 0.8 * s.n + x.a
    return { n = n }, mean(n) * x.a
  end,
})

-- Nothing but moves, nothing but constants, nothing at all.
local bare = {
  ["their sum"] = function (x) return x.a + x.c end,
  ["sums of both"] = function (x) return sum(x.a) + mean(x.c) end,
  ["one entry"] = function (x) return flin.at(x.a * x.c, "k", 1) end,
  ["another name"] = function (x) return flin.rename(x.a * x.c, "k", "d") end,
  ["the token before"] = function (x) return flin.prev(x.a) + x.c end,
  ["the sum before"] = function (x) return flin.prev(sum(x.a)) + x.c end,
}
for name, step in pairs(bare) do
  check("y is " .. name, {
    input = { a = "t k", c = "k" },
    step = function (x) return {}, step(x) end,
  })
end

check("y is the input", {
  input = { a = "t k" }, step = function (x) return {}, x.a end,
})

-- y is a sum alone: its gradient is dy itself, for every entry.
do
  local v = flin.variant {
    name = "summed", input = { a = "t k" },
    step = function (x) return {}, sum(x.a) end,
  }
  local inputs = v:random { B = 1, T = 3, H = 1, K = 4 }
  inputs.dy = flin.full({ 1, 3, 1 }, 2)
  local d = v:backward(inputs).a
  expect((d - flin.full({ 1, 3, 1, 4 }, 2)):maxabs() == 0,
         "the gradient of a sum is not the same for all entries")
  for _, machine in ipairs { "cpu", "h200" } do
    local ok, why = pcall(v.plan, v, { K = 4, backward = true,
                                       machine = machine })
    expect(ok, "a sum has no plan on %s: %s", machine, why)
  end
end

-- Tokens before those before.
for _, n in ipairs { 2, 7, 8, 12, 20, 31 } do
  check("prev " .. n .. " times", {
    input = { q = "t k", k = "t k" },
    step = function (x)
      local k, other = x.k, x.q * x.k
      for _ = 1, n do k = flin.prev(k) end
      if n < 16 then
        for _ = 1, n do other = flin.prev(other) end
      end
      return {}, k * x.q + other
    end,
  })
end
do
  local v = flin.variant {
    name = "chains", input = { a = "t", b = "t" },
    step = function (x)
      local y, u, w = x.a * 0, x.a * x.b, x.b
      for _ = 1, 12 do
        u, w = flin.prev(u), flin.prev(w)
        y = y + u + w
      end
      return {}, y
    end,
  }
  local seen, doubled = {}, nil
  for _, state in ipairs(v.states) do
    doubled = doubled or seen[state.name] and state.name
    seen[state.name] = true
  end
  expect(not doubled, "two states are called %s", doubled)
  expect(seen.prev_prev_b and seen.prev_12_b, "prev names its states otherwise")
end

-- Many inputs; many constants.
for _, n in ipairs { 64, 65, 120 } do
  local input = {}
  for i = 1, n do input["i" .. i] = "t" end
  check(n .. " inputs", { input = input, step = function (x)
    local y = 0
    for i = 1, n do y = y + (i % 7 + 1) * x["i" .. i] end
    return {}, y
  end })
end
do
  local input = { a = "t" }
  for i = 1, 60 do input["c" .. i] = "" end
  check("60 constants", { input = input, step = function (x)
    local y = x.a
    for i = 1, 60 do y = y + x.a * x["c" .. i] / 8 end
    return {}, y
  end })
  local many = {}
  for i = 1, 128 do many["i" .. i] = "t" end
  local ok, why = pcall(flin.variant, { input = many, step = print })
  expect(not ok and tostring(why):find "128 inputs; 127 at most",
         "128 inputs: %s", why)
end

-- An input and a state of one name, an input called as an earlier token.
check("names that meet", {
  input = { q = "t k", k = "t k", v = "t v", S = "k", y = "t", prev_k = "k" },
  state = { S = "k v", d_S = "", q = "" },
  step = function (x, s)
    local S = 0.9 * s.S + outer(x.k * x.S + flin.prev(x.k) * x.prev_k, x.v)
    local d = 0.5 * s.d_S + x.y
    return { S = S, d_S = d, q = 0.5 * s.q + d }, dot(x.q, S) * x.y + s.q * d
  end,
})

-- More axes in one value than a tensor has.
check("a value of 14 axes", {
  axes = { a = 2, b = 2, c = 1, d = 2, e = 2, f = 1, g = 2, h = 2, i2 = 1,
           j2 = 2, l = 2, m = 1, n = 2, o = 2 },
  input = { x1 = "t a b c d e", x2 = "t f g h i2", x3 = "t j2 l m n o" },
  step = function (x)
    return {}, sum(flin.tanh(x.x1 * x.x2 * x.x3))
  end,
})

count.finish()
