local flin = require "flin"
local function step_of(f)
  return flin.variant { name = "mine", input = { q = "t k" },
                        state = { S = "k" }, step = f }
end
step_of(function (x, s)
  print(("%g"):format(x.q))
  return { S = s.S + x.q }, x.q
end)
