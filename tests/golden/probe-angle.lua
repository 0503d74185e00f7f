local flin = require "flin"
local v = flin.variant {
  input = { x = "t" },
  state = { phi = ": angle" },
  step = function (x, s)
    local phi = s.phi + x.x
    flin.probe("angle", phi)
    return { phi = phi }, flin.cos(phi)
  end,
}
v:probe(v:random { T = 4 })
