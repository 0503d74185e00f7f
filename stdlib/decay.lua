-- Decays of flin.attention: what the state forgets from token to token.
--
-- A decay is a table: input and state, the arguments and states it brings;
-- gate(x, s, new), which returns the factor of the state and the weight of
-- what is written (nil: 1); and what the other pieces must know of it
-- (trapezoidal, normalised, per = "head" or "key").
local flin, options = ...
local exp, max, logsigmoid = flin.exp, flin.max, flin.logsigmoid
local initial = flin.initial

local decay = {}

local function with_lambda(d, discretization)
  if discretization == "trapezoidal" then
    d.input.lambda = "t : unit"
    d.trapezoidal = true
  end
  return d
end

-- S = S + k v^T.
function decay.none(o)
  options("decay.none", o, {})
  return { name = "none", input = {}, gate = function () end }
end

-- One g a head, the same for every token (RetNet, Lightning attention).
function decay.fixed(o)
  options("decay.fixed", o, {})
  return {
    name = "fixed", per = "head", input = { g = ": log_decay" },
    initial = {
      g = function (at) return math.log(1 - 2 ^ (-4 - at.h)) end,
    },
    gate = function (x) return exp(x.g) end,
  }
end

-- exp(A dt) with A = -exp(A_log); what is written is weighed by dt (Mamba).
function decay.exponential(o)
  o = options("decay.exponential", o, {
    data_dependent = { true, false },
    discretization = { "euler", "trapezoidal" },
  })
  return with_lambda({
    name = "exponential", per = "head",
    input = { A_log = "",
              dt = o.data_dependent and "t : positive" or ": positive" },
    initial = { A_log = initial.log_rates(),
                dt = not o.data_dependent and initial.log_uniform() or nil },
    gate = function (x) return exp(-exp(x.A_log) * x.dt), x.dt end,
  }, o.discretization)
end

-- A gate of the caller's: one a head (GDN), or one a key channel (GLA).
function decay.gated(o)
  o = options("decay.gated", o, {
    per = { "head", "key" },
    discretization = { "euler", "trapezoidal" },
  })
  return with_lambda({
    name = "gated", per = o.per,
    input = { g = o.per == "key" and "t k : log_decay" or "t : log_decay" },
    gate = function (x) return exp(x.g) end,
  }, o.discretization)
end

-- An exponential input gate i and a sigmoid forget gate f, kept in range by
-- the running maximum m; y is divided by the sum of the weights (mLSTM).
function decay.max_stabilized(o)
  options("decay.max_stabilized", o, {})
  return {
    name = "max_stabilized", per = "head", normalised = true,
    input = { i = "t", f = "t" }, state = { m = "" },
    gate = function (x, s, new)
      local f = logsigmoid(x.f) + s.m
      new.m = max(f, x.i)
      return exp(f - new.m), exp(x.i - new.m)
    end,
  }
end

return decay
