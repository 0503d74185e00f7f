-- A mask with a transition: the state that it decays, corrected as the
-- transition says. Held to the definition in full,
--     u_i = beta_i (v_i - sum over j < i of L(i, j) (k_i . k_j) u_j),
--     y_i = row(i) sum over j <= i of L(i, j) (q_i . k_j) u_j,
-- and to what tier 1 makes of the same.
local flin = require "flin"
local exp, transition = flin.exp, flin.transition

local count = require "support.count"
local check <const> = count.check

local function decay(i, j, p)
  if i < j then return 0 end
  return exp(p.g_cumsum[i] - p.g_cumsum[j])
end

-- L(i, j) of numbers, row(i) apart; keyed: of key n.
local function plain(x, L, row, T, K, V)
  local u, y = {}, {}
  local function k(t, n) return x.k[{ 1, t, 1, n }] end
  for i = 1, T do
    u[i], y[i] = {}, {}
    for d = 1, V do
      local found = 0
      for j = 1, i - 1 do
        for n = 1, K do
          found = found + L(i, j, n) * k(i, n) * k(j, n) * u[j][d]
        end
      end
      u[i][d] = x.beta[{ 1, i, 1 }] * (x.v[{ 1, i, 1, d }] - found)
    end
    for d = 1, V do
      y[i][d] = 0
      for j = 1, i do
        for n = 1, K do
          y[i][d] = y[i][d] + row(i) * L(i, j, n) * x.q[{ 1, i, 1, n }]
                              * k(j, n) * u[j][d]
        end
      end
    end
  end
  return y
end

local T <const>, K <const>, V <const> = 30, 4, 3

local function as_defined(name, def, L, row)
  def.name, def.transition = name, transition.delta_rule()
  local v = flin.variant(def)
  local x = v:random { B = 1, H = 1, T = T, K = K, V = V, dtype = "float64" }
  local want = plain(x, function (i, j, n) return L(x, i, j, n) end,
                     function (i) return row and row(x, i) or 1 end, T, K, V)
  for _, call in ipairs { "reference", "forward" } do
    local y, worst = v[call](v, x), 0
    for i = 1, T do
      for d = 1, V do
        worst = math.max(worst, math.abs(y[{ 1, i, 1, d }] - want[i][d]))
      end
    end
    check(name .. " " .. call, worst <= (call == "forward" and 1e-5 or 1e-11),
          worst)
  end
  local e = v:check { T = 70, H = 1, HV = 2, K = 8, V = 6, chunk = 16 }
  check(name .. " check", e.worst <= 1e-5, e)
  e = v:check { T = 30, K = 8, V = 6, cu_seqlens = { 0, 7, 7, 30 } }
  check(name .. " packed", e.worst <= 1e-5, e)
  return v
end

-- The sum of g behind token j, to token i.
local function gates(x, i, j, ...)
  local sum = 0
  for t = j + 1, i do sum = sum + x.g[{ 1, t, 1, ... }] end
  return math.exp(sum)
end

local delta = as_defined("gated", { mask = decay }, function (x, i, j)
  return gates(x, i, j)
end)
as_defined("fixed", { mask = function (i, j)
  if i < j then return 0 end
  return exp(-0.1 * (i - j))
end }, function (_, i, j) return math.exp(-0.1 * (i - j)) end)
as_defined("keyed", { mask = decay, input = { g = "t k : log_decay" } },
           function (x, i, j, n) return gates(x, i, j, n) end)
as_defined("rows", { mask = function (i, j, p)
  if i < j then return 0 end
  return p.a[i] * exp(p.g_cumsum[i] - p.g_cumsum[j])
end }, function (x, i, j) return gates(x, i, j) end,
  function (x, i) return x.a[{ 1, i, 1 }] end)

-- To the bit, what tier 1 and the standard library have.
do
  local x = delta:random { T = 100, K = 16, V = 16 }
  local e = (delta:forward(x) - flin.stdlib.gated_deltanet:forward(x)):maxabs()
  check("gated deltanet", e == 0, e)
  local dplr = flin.variant { mask = decay, transition = transition.dplr() }
  local tier = flin.attention { decay = flin.decay.gated { per = "head" },
                                transition = transition.dplr(), scale = 1 }
  x = dplr:random { T = 100, K = 16, V = 16 }
  e = (dplr:reference(x) - tier:reference(x)):maxabs()
  check("dplr", e <= 1e-12, e)
end

local function holds(name, def)
  def.name = name
  local e = flin.variant(def):check { T = 70, K = 8, V = 6, chunk = 16 }
  check(name, e.worst <= 1e-5, e)
end

local function weighed(i, j, p)
  if i < j then return 0 end
  return p.b[j] * exp(p.g_cumsum[i] - p.g_cumsum[j])
end
holds("columns", { mask = weighed, transition = transition.one_step_gd() })
holds("states of its own", { mask = weighed,
  input = { b = "t : positive", g = "t : log_decay" },
  transition = transition.preconditioned_gd() })
holds("custom", { mask = weighed, transition = transition.custom {
  input = { eta = "t : unit", k = "t k : unit_norm", b = "t : unit" },
  update = function (c)
    return c.S + flin.outer(c.w * c.x.eta * c.k, c.v - flin.dot(c.k, c.S))
  end } })

local function refused(name, def, message)
  def.transition = def.transition or transition.delta_rule()
  local ok, why = pcall(flin.variant, def)
  check(name, not ok and tostring(why):find(message, 1, true), why)
end

refused("columns of a delta rule", { mask = weighed }, "beta says")
refused("a sum", { mask = function (i, j)
  if i < j then return 0 end
  return 1 + exp(-0.1 * (i - j))
end }, "a sum of 2 products")
refused("a band", { mask = function (i, j)
  if i < j or i - j > 2 then return 0 end
  return 1
end }, "the mask is a band")
refused("a late start", { mask = function (i, j)
  if i <= j then return 0 end
  return 1
end }, "begins at i - j = 1")
refused("both directions", { causal = false, mask = function (i, j)
  return exp(-0.1 * flin.abs(i - j))
end }, "weighs those behind")
refused("several keys", { mask = decay,
  transition = transition.delta_product { steps = 2 } }, "several keys")
refused("a word", { mask = decay, transition = "delta_rule" },
        "what flin.transition gives is wanted, not a string")
refused("of a step", { step = function (x, s) return { S = s.S }, x.v end,
                       input = { v = "t v" }, state = { S = "v" } },
        "transition is of masks")
refused("nothing returned", { mask = decay,
  transition = transition.custom(function () end) }, "update gives no S")
refused("other axes", { mask = decay,
  transition = transition.custom(function (c) return c.v end) },
  "S would have axes v, not k v")

count.finish()
