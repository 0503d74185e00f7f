local flin = require "flin"
local kept
local function variant(step)
  return flin.variant { name = "v", input = { q = "t k" }, step = step }
end
variant(function (x)
  kept = x.q
  return {}, x.q
end)
variant(function (x)
  return {}, x.q + kept
end)
