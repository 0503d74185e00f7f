local flin = require "flin"
local function step_of(f)
  return flin.variant { name = "mine", input = { q = "t k" },
                        state = { S = "k" }, step = f }
end
step_of(function (x, s)
  local S = math.abs(x.q) + s.S
  return { S = S }, S
end)
