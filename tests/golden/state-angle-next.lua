local flin = require "flin"
flin.variant {
  name = "bad",
  input = { x = "t p" },
  state = { phi = "p : angle", total = "p" },
  step = function (x, s)
    local phi = s.phi + x.x
    local total = s.total + phi
    return { phi = phi, total = total }, flin.sin(phi)
  end,
}
