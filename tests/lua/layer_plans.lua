-- flin: --memory 128
-- Plans of a layer leave nothing behind: here more than two at a time have no
-- room.
local flin = require "flin"

local layer <const> = flin.layers.mamba2
for i = 1, 12 do
  local plan <const> = layer:plan { d = 64, h = 1, k = 16, v = 64, B = i,
                                    machine = "h200", backward = true }
  assert(#plan.parts > 1)
end
print "1 passed, 0 failed"
