local flin = require "flin"

return flin.attention {
  transition = flin.transition.delta_rule(),
  decay = "gated",
}
