-- DeltaNet (Yang et al., 2024, arXiv:2406.06484) in rotated features, with
-- Mamba-3's data-dependent angles: corrects what it holds, tracks phases.
local flin = require "flin"
local dot, outer, rotate = flin.dot, flin.outer, flin.rotate

return flin.variant {
  name  = "deltanet_rope",
  input = { q = "t k", k = "t k : unit_norm", v = "t v",
            beta = "t : unit", theta = "t p : angle" },
  state = { S = "k v", phi = "p : angle" },
  initial = { theta = 0 },
  step  = function (x, s)
    local phi = s.phi + x.theta
    local q, k = rotate(x.q, phi), rotate(x.k, phi)
    local S = s.S + outer(x.beta * k, x.v - dot(k, s.S))
    return { S = S, phi = phi }, dot(q, S)
  end,
}
