-- A decay of each value (or key) under a step that reads the other axis before
-- it writes, and a rate of each value that multiplies what is read: v:check,
-- gradients included, resets among the gates, packed sequences and shared
-- heads; and what has no such chunk form.
--   flin value_decays.lua [cuda]
local flin = require "flin"
local exp, dot, outer = flin.exp, flin.dot, flin.outer
local count = require "support.count"
local expect <const> = count.expect
local backend <const> = arg[1] or "cpu"

local function variant(name, more, step)
  local input = { q = "t k", k = "t k : unit_norm", v = "t v",
                  g = "t v : log_decay", beta = "t : unit" }
  for key, axes in pairs(more) do input[key] = axes end
  return flin.variant { name = name, input = input, state = { S = "k v" },
                        step = step }
end

local variants <const> = {
  variant("behind the decay", {}, function (x, s)
    local S = exp(x.g) * s.S
    S = S + outer(x.beta * x.k, x.v - dot(x.k, S))
    return { S = S }, dot(x.q, S)
  end),
  variant("before the decay, reads of both", { p = "t k", u = "t v" },
          function (x, s)
    local S = exp(x.g) * s.S + outer(x.beta * x.k, x.v - dot(x.k, s.S))
              + outer(x.p, x.u)
    return { S = S }, dot(x.q, S) * dot(x.q, s.S) + x.v * dot(x.k, dot(x.u, S))
  end),
  variant("another key", { a = "t k : unit_norm", b = "t k : unit_norm" },
          function (x, s)
    local S = exp(x.g) * s.S + outer(x.b, dot(x.a, s.S)) / 2
              + outer(x.beta * x.k, x.v)
    return { S = S }, dot(x.q, S)
  end),
  variant("of keys", { q = "t v", k = "t k", v = "t v : unit_norm",
                       g = "t k : log_decay" }, function (x, s)
    local S = exp(x.g) * s.S
    S = S + outer(x.k - dot(S, x.v), x.beta * x.v)
    return { S = S }, dot(S, x.q)
  end),
  variant("with a rate of its own", { beta = "t v : unit" }, function (x, s)
    local S = exp(x.g) * s.S + outer(x.k, x.beta * (x.v - dot(x.k, s.S)))
    return { S = S }, dot(x.q, S)
  end),
  -- a rate alone, as online regression is solved for each value (Longhorn), and
  -- what the token before has written beside it
  variant("a rate under a decay of keys", { beta = "t v : unit",
                                            g = "t k : log_decay" },
          function (x, s)
    local rate = x.beta / (1 + x.beta * dot(x.k, x.k))
    local S = exp(x.g) * s.S
    S = S + outer(x.k, rate * (x.v - dot(x.k, S)))
        + outer(flin.prev(x.k), x.v) / 2
    return { S = S }, dot(x.q, S)
  end),
}

-- Sums of float32; of bfloat16 it is the results that are rounded, and on GPUs
-- what kernels keep for one another. Gates' and rates' gradients are what is
-- left of sums.
local LIMIT <const> = { float32 = 1e-5, bfloat16 = backend == "cpu" and 4e-3
                                                  or 8e-3 }
local LOOSE <const> = { d_g = 2e-2, d_beta = 2e-2, worst = 2e-2 }
local function check(v, case)
  local found, limit = v:check(case), LIMIT[case.dtype or "float32"]
  expect(not found.note, "%s goes token by token: %s", v.name, found.note)
  for what, off in pairs(found) do
    local most = limit == 8e-3 and LOOSE[what] or limit
    expect(type(off) ~= "number" or off <= most, "%s: %s is off by %s", v.name,
           what, off)
  end
end
for _, v in ipairs(variants) do
  expect(tostring(v.form):find "runs in chunks", "%s: %s", v.name, v.form)
  for _, case in ipairs(backend == "cuda" and {   -- each is compiled
    { T = 70, H = 2, HV = 4, K = 16, V = 16, dtype = "bfloat16",
      cu_seqlens = { 0, 0, 3, 70 } },
  } or {
    { T = 50, K = 8, V = 8 },
    { T = 100, K = 16, V = 12, chunk = 64, H = 2, HV = 4 },
    { T = 33, K = 5, V = 7, chunk = 16, cu_seqlens = { 0, 0, 20, 33 } },
    { T = 70, K = 16, V = 24, chunk = 32, dtype = "bfloat16" },
  }) do
    case.backend = backend
    check(v, case)
  end
  local x = v:random { B = 2, T = 100, H = 2, K = 16, V = 16 }
  for i, gate in ipairs { -1e9, -30, 0, -104 } do
    x.g:narrow(2, 7 + 20 * i, 1):fill(gate)
  end
  local truth = v:reference(x)
  if backend == "cuda" then
    for name, t in pairs(x) do x[name] = t:to "cuda" end
  end
  local off = (v:forward(x):to "cpu" - truth):maxabs() / truth:maxabs()
  expect(off <= 1e-5, "%s, resets: off by %s", v.name, off)
end

-- Several reads, also by ranks, and decays of both axes, go token by token.
for name, v in pairs {
  several = variant("several", { w = "t k : unit_norm" }, function (x, s)
    local S = exp(x.g) * s.S
    S = S + outer(x.beta * x.k, x.v - dot(x.k, S))
    S = S + outer(x.w, x.v - dot(x.w, S))
    return { S = S }, dot(x.q, S)
  end),
  ranks = variant("ranks", { k = "t k r : unit_norm", v = "t v r" },
                  function (x, s)
    local S = exp(x.g) * s.S
    S = S + dot(x.beta * x.k / 4, x.v - dot(x.k, S, "k"), "r")
    return { S = S }, dot(x.q, S)
  end),
  both = variant("both", { h = "t k : log_decay" }, function (x, s)
    local S = exp(x.g) * (exp(x.h) * s.S)
    S = S + outer(x.beta * x.k, x.v - dot(x.k, S))
    return { S = S }, dot(x.q, S)
  end),
} do
  expect(tostring(v.form):find "token by token", "%s: %s", name, v.form)
  local found = v:check { T = 20, K = 5, V = 6, R = name == "ranks" and 2
                          or nil, backend = backend }
  expect(found.worst <= 1e-5, "%s: off by %s", name, found.worst)
end
count.finish()
