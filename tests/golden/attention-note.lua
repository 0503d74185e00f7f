local flin = require "flin"

-- What has no chunk form is blamed on who composed it.
local v = flin.attention {
  features = flin.feature_map.taylor(),
}
error(v.form, 0)
