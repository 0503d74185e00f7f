-- Transitions of flin.attention: how what is written meets what is held.
--
-- A transition is a table: input, state and axes, what it brings; keys and
-- values, the axes that k and v have besides their own; error_feedback, if
-- what is written depends on the state; and update(c), the next S. c holds
-- x, s and new; S, the state after its decay; k and v; w, the weight of what
-- is written (or nil); k0, v0, w0, the same of the previous token, under the
-- trapezoidal rule.
local flin, options = ...
local dot, outer, at, mean = flin.dot, flin.outer, flin.at, flin.mean

local transition = {}

local function times(w, k)
  return w and w * k or k
end

-- k v^T, or the sum of it over the ranks.
local function product(rank, k, v)
  return rank > 1 and dot(k, v, "r") or outer(k, v)
end

-- What both tokens of the trapezoidal rule write, keys scaled by P (or nil).
local function written(c, rank, P)
  local now = product(rank, times(P, times(c.w, c.k)), c.v)
  if not c.k0 then
    return now
  end
  return product(rank, times(P, c.w0 * c.k0), c.v0) + now
end

local function ranked(t, rank)
  if rank > 1 then
    t.axes = { r = rank }
    t.extra = "r "
  end
  return t
end

-- S + k v^T: one step of gradient descent on <v, S^T k> (linear attention).
function transition.one_step_gd(o)
  local rank = options("transition.one_step_gd", o,
                       { mimo_rank = 1 }).mimo_rank
  return ranked({
    name = "one_step_gd",
    update = function (c) return c.S + written(c, rank) end,
  }, rank)
end

-- S + beta k (v - S^T k)^T: one step on |v - S^T k|^2 / 2 (DeltaNet).
function transition.delta_rule(o)
  local rank = options("transition.delta_rule", o, { mimo_rank = 1 }).mimo_rank
  return ranked({
    name = "delta_rule", error_feedback = true,
    input = { beta = rank > 1 and "t r : unit" or "t : unit" },
    update = function (c)
      local error = c.v - dot(c.k, c.S, "k")
      return c.S + product(rank, c.x.beta * c.k, error)
    end,
  }, rank)
end

-- Several such steps for each token, one after another (DeltaProduct).
function transition.delta_product(o)
  local steps = options("transition.delta_product", o, { steps = 2 }).steps
  return {
    name = "delta_product", error_feedback = true,
    axes = { n = steps }, extra = "n ",
    input = { beta = "t n : unit" },
    update = function (c)
      local S = c.S
      for j = 1, steps do
        local k, v = at(c.k, "n", j), at(c.v, "n", j)
        S = S + outer(at(c.x.beta, "n", j) * k, v - dot(k, S))
      end
      return S
    end,
  }
end

-- S - a kappa (kappa^T S_before) + k v^T, a for each channel, where kappa
-- reads the state before its decay: diagonal plus low rank (RWKV-7).
function transition.dplr(o)
  options("transition.dplr", o, {})
  return {
    name = "dplr", error_feedback = true,
    input = { kappa = "t k : unit_norm", a = "t k : unit" },
    update = function (c)
      local removed = outer(c.x.a * c.x.kappa, dot(c.x.kappa, c.s.S))
      return c.S - removed + outer(c.k, c.v)
    end,
  }
end

-- S + P k v^T, with P the inverse of the keys' diagonal covariance A relative
-- to its mean: A sums the squares of the keys as S sums the keys.
function transition.preconditioned_gd(o)
  o = options("transition.preconditioned_gd", o,
              { preconditioner = { "diagonal" }, mimo_rank = 1 })
  local rank = o.mimo_rank
  local function squares(w, k)
    local k2 = times(w, k^2)
    return rank > 1 and flin.sum(k2, "r") or k2
  end
  return ranked({
    name = "preconditioned_gd", state = { A = "k" },
    update = function (c)
      local A = times(c.D, c.s.A) + squares(c.w, c.k)
      if c.k0 then
        A = A + squares(c.w0, c.k0)
      end
      c.new.A = A
      local P = 1 / (A / (mean(A) + 1e-6) + 0.03)
      return c.S + written(c, rank, P)
    end,
  }, rank)
end

-- Yours: update(c) as above, with the inputs and states that it needs.
function transition.custom(o)
  if type(o) == "function" then
    o = { update = o }
  elseif type(o) ~= "table" or type(o.update) ~= "function" then
    error("transition.custom: a function update(c) is wanted, or a table "
          .. "{ update =, input =, state =, axes = }", 2)
  end
  return { name = "custom", error_feedback = true, input = o.input,
           state = o.state, axes = o.axes, update = o.update }
end

return transition
