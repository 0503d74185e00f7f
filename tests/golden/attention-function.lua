local flin = require "flin"
local exp, dot, outer = flin.exp, flin.dot, flin.outer
flin.attention { features = flin.feature_map.rope }
