-- Variants that masks say, one of each kind that is a scan: the laws hold of
-- these as of the standard library's.
local flin = require "flin"
local exp = flin.exp

local function decay(i, j, p)
  if i < j then return 0 end
  return exp(p.g_cumsum[i] - p.g_cumsum[j])
end

return {
  masked_keys = flin.variant { name = "masked_keys", mask = decay,
                               input = { g = "t k : log_decay" } },
  masked_delta = flin.variant { name = "masked_delta", mask = decay,
    transition = flin.transition.delta_rule() },
  masked_stride = flin.variant { name = "masked_stride",
                                 mask = function (i, j, p)
    if i < j or (i - j) % 3 > 0 then return 0 end
    return p.b[j] * exp(p.g_cumsum[i] - p.g_cumsum[j])
  end },
  masked_sinks = flin.variant { name = "masked_sinks",
                                mask = function (i, j, p)
    if i < j then return 0 end
    if i - j >= 40 and j >= 4 then return 0 end
    return p.b[j] * exp(p.g_cumsum[i] - p.g_cumsum[j])
  end },
  masked_window = flin.variant { name = "masked_window",
                                 mask = function (i, j, p)
    if i < j or i - j >= 150 then return 0 end
    return p.b[j] * exp(p.g_cumsum[i] - p.g_cumsum[j])
  end },
}
