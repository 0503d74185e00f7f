-- Cyclic flow attention (Chen, 2026, arXiv:2609.36259): keys and values lie in
-- slots that a learned clock turns, here in the frame of that clock; a learned
-- readout and a softmax between two passes. Queries and keys come with norm.
local flin = require "flin"
local exp, dot, outer = flin.exp, flin.dot, flin.outer
local rotate, sum, pi = flin.rotate, flin.sum, math.pi

return flin.variant {
  name  = "cyfa",
  input = { q = "t k", k = "t k", v = "t v", g = "t : log_decay", turn = "t",
            beta = "t : unit", rate = "p : angle", atom = "m",
            readout = "r m" },
  state = { A = "k m", C = "m v", phi = "p : angle" },
  initial = {                           -- sines and cosines of the slots
    rate = function (at) return 2 * pi * (at.p - 1) / (at.size.m - 1) end,
    atom = function (at)
      return at.m % 2 * math.sqrt(math.min(at.m, 2) / (at.size.m - 1))
    end,
    readout = function (at)
      local angle = 2 * pi * (at.r - 1) * ((at.m - 1) // 2) / (at.size.m - 1)
      return math.sqrt(math.min(at.m, 2) / (at.size.m - 1))
             * (at.m % 2 == 1 and math.cos(angle) or math.sin(angle))
    end,
  },
  step  = function (x, s)
    local phi = s.phi + x.rate * x.turn
    local w = x.beta * rotate(x.atom, -phi)
    local A = exp(x.g) * s.A + outer(x.k, w)
    local C = exp(x.g) * s.C + outer(w, x.v)
    local p = exp(dot(x.readout, rotate(dot(x.q, A), phi)))
    local c = rotate(dot(p / sum(p), x.readout), -phi)
    return { A = A, C = C, phi = phi }, dot(c, C)
  end,
}
