-- RetNet (Sun et al., 2023, arXiv:2307.08621): a fixed decay and fixed angles.
-- g = log(1 - 2^(-5 - head)), heads from 0 on.
local flin = require "flin"
local exp, dot, outer, rotate = flin.exp, flin.dot, flin.outer, flin.rotate

return flin.variant {
  name  = "retnet",
  input = { q = "t k", k = "t k", v = "t v", g = ": log_decay",
            theta = "p : angle" },
  state = { S = "k v", phi = "p : angle" },
  initial = {
    g = function (at) return math.log(1 - 2 ^ (-4 - at.h)) end,
    theta = flin.initial.frequencies(),
  },
  step  = function (x, s)
    local phi = s.phi + x.theta
    local q, k = rotate(x.q, phi), rotate(x.k, phi)
    local S = exp(x.g) * s.S + outer(k, x.v)
    return { S = S, phi = phi }, dot(q, S)
  end,
}
