local flin = require "flin"
local exp, dot, outer = flin.exp, flin.dot, flin.outer
flin.variant { name = "bad", mask = function (i, j, p)
  if i < j then return 0 end
  return exp(p.g)
end }
