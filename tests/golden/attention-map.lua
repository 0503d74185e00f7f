local flin = require "flin"
-- a sum has no axis k left
flin.attention {
  features = function (u) return flin.sum(u) end,
}
