-- Writes of a token one after another, each of which reads what those before it
-- have left: rows that are solved for as tokens are, whatever is between them;
-- by the float64 step. What is no such sequence is written out.
local flin = require "flin"
local count = require "support.count"
local expect = count.expect

local exp <const>, dot <const>, outer <const> = flin.exp, flin.dot, flin.outer

local function check(name, in_rows, step)
  local v = flin.variant {
    name  = name,
    input = { q = "t k", k = "t k : unit_norm", l = "t k : unit_norm",
              m = "t k", v = "t v", w = "t v", beta = "t : unit",
              g = "t : log_decay" },
    state = { S = "k v" },
    step  = function (x, s)
      local S, y = step(x, s.S)
      return { S = S }, dot(x.q, S) + (y or dot(x.m, x.k) * (x.v + x.w))
    end,
  }
  local r = v:check { B = 2, T = 37, H = 2, K = 8, V = 6, seed = 3 }
  expect(r.worst < 1e-5, "%s: off by %s", name, r.worst)
  expect((v:dump "C":find "= later over r1" ~= nil) == in_rows,
         "%s: its rows are%s solved for one after another", name,
         in_rows and " not" or "")
end

check("one after another", true, function (x, S)
  S = exp(x.g) * S
  S = S + outer(x.beta * x.k, x.v - dot(x.k, S))
  return S - outer(x.l, x.beta * (dot(x.l, S) - x.w * flin.sigmoid(x.v)))
end)
-- What reads nothing is a row where another one finds it.
check("a sum between", true, function (x, S)
  S = exp(x.g) * S
  S = S + outer(x.beta * x.k, x.v - dot(x.k, S))
  S = S + outer(x.m / 4, x.w)
  return S + outer(x.beta * x.l, x.v - dot(x.l, S))
end)
check("a sum first", true, function (x, S)
  S = exp(x.g) * S + outer(x.m / 4, x.w)
  S = S + outer(x.beta * x.k, x.v - dot(x.k, S))
  return S + outer(x.beta * x.l, x.w - dot(x.l, S))
end)
check("a sum last", true, function (x, S)
  S = exp(x.g) * S
  S = S + outer(x.beta * x.k, x.v - dot(x.k, S))
  S = S + outer(x.beta * x.l, x.w - dot(x.l, S))
  return S + outer(x.m, x.v * flin.sigmoid(x.w))
end)
check("a read between", true, function (x, S)
  S = exp(x.g) * S
  S = S + outer(x.beta * x.k, x.v - dot(x.k, S))
  local y = dot(x.m, S)
  return S + outer(x.beta * x.l, x.w - dot(x.l, S)), y
end)
check("a decay between", false, function (x, S)
  S = S + outer(x.beta * x.k, x.v - dot(x.k, S))
  S = exp(x.g) * S
  return S + outer(x.beta * x.l, x.w - dot(x.l, S))
end)
check("two that find the same", false, function (x, S)
  local D <const> = exp(x.g) * S
  S = D + outer(x.beta / 2 * x.k, x.v - dot(x.k, D))
  return S + outer(x.beta / 2 * x.l, x.w - dot(x.l, D))
end)
check("one that finds the decay alone, too", false, function (x, S)
  local D <const> = exp(x.g) * S
  S = D + outer(x.beta * x.k, x.v - dot(x.k, D))
  return S + outer(x.beta / 2 * x.l, x.w - dot(x.l, S) - dot(x.m, D) / 8)
end)
check("one that finds what was before the decay", false, function (x, S)
  local D <const> = exp(x.g) * S
  local R <const> = D + outer(x.beta * x.k / 2, x.v - dot(x.k, S))
  return R + outer(x.beta / 2 * x.l, x.w - dot(x.l, R))
end)
check("the same key twice", false, function (x, S)
  S = exp(x.g) * S
  S = S + outer(x.beta * x.k, x.v - dot(x.k, S))
  return S + outer(x.beta * x.k, x.w - dot(x.k, S)), dot(x.l, x.m) * x.v
end)

count.finish()
