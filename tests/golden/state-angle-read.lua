local flin = require "flin"
flin.variant {
  name = "bad",
  input = { x = "t p" },
  state = { phi = "p : angle" },
  step = function (x, s)
    local phi = s.phi + x.x
    local half = 0.5 * phi
    return { phi = phi }, flin.cos(half)
  end,
}
