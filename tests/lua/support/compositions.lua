-- What flin.attention composes: each decay with each features and transition.
local flin = require "flin"
local D, F, T = flin.decay, flin.feature_map, flin.transition

local decays = {
  { "none", D.none {} }, { "fixed", D.fixed {} }, { "gated", D.gated {} },
  { "gated per key", D.gated { per = "key" } },
  { "exponential", D.exponential { data_dependent = false } },
  { "exponential dt", D.exponential {} },
  { "stabilised", D.max_stabilized {} },
  { "gated trapezoidal", D.gated { discretization = "trapezoidal" } },
  { "trapezoidal", D.exponential { discretization = "trapezoidal" } },
}
local features = {
  { "as they are", F.identity {} }, { "relu", F.relu {} },
  { "silu", F.silu {} }, { "elu1", F.elu1 {} }, { "l2norm", F.l2norm {} },
  { "rope", F.rope {} }, { "rope of tokens", F.rope { data_dependent = true } },
  { "exp", F.map(flin.exp) }, { "taylor", F.taylor {} },
}
local transitions = {
  { "sum", T.one_step_gd {} },
  { "sum, 2 ranks", T.one_step_gd { mimo_rank = 2 } },
  { "delta", T.delta_rule {} },
  { "delta, 2 ranks", T.delta_rule { mimo_rank = 2 } },
  { "product of 2", T.delta_product { steps = 2 } }, { "dplr", T.dplr {} },
  { "preconditioned", T.preconditioned_gd {} },
  { "preconditioned, 2 ranks", T.preconditioned_gd { mimo_rank = 2 } },
}

-- act(TITLE, VARIANT, N) of those that are accepted, of which wants(N); N: its
-- number among all.
return function (wants, act)
  local at = 0
  for _, d in ipairs(decays) do
    for _, f in ipairs(features) do
      for _, t in ipairs(transitions) do
        at = at + 1
        local ok, v = wants(at), nil
        if ok then
          ok, v = pcall(flin.attention, { decay = d[2], features = f[2],
                                          transition = t[2] })
        end
        if ok then act(table.concat({ d[1], f[1], t[1] }, ", "), v, at) end
      end
    end
  end
end
