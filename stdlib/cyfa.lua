-- Cyclic flow attention (Chen, 2026, arXiv:2609.36259): keys and values lie in
-- slots that a learned clock turns, here in the frame of that clock; a learned
-- readout and a softmax between two passes. Queries and keys come with norm.
local flin = require "flin"
local exp, dot, outer = flin.exp, flin.dot, flin.outer
local rotate, sum, size, pi = flin.rotate, flin.sum, flin.size, math.pi

local function wave(at, slot)
  local n, angle = at.size.m - 1, slot * ((at.m - 1) // 2) * 2 * pi
  return math.sqrt(math.min(at.m, 2) / n)
         * (at.m % 2 == 1 and math.cos(angle / n) or math.sin(angle / n))
end

return flin.variant {
  name  = "cyfa",
  input = { q = "t k", k = "t k", v = "t v", g = "t : log_decay", turn = "t",
            beta = "t : unit", rate = "p : angle", atom = "m",
            readout = "r m" },
  state = { A = "m k", C = "m v", phi = "p : angle" },
  initial = {                           -- slots are sums of such waves
    rate = function (at) return 2 * pi * (at.p - 1) / (at.size.m - 1) end,
    atom = function (at) return wave(at, 0) end,
    readout = function (at) return wave(at, at.r - 1) end,
  },
  step  = function (x, s)
    local phi = s.phi + x.rate * x.turn
    local w = x.beta * rotate(x.atom, -phi)
    local A = exp(x.g) * s.A + outer(w, x.k)
    local C = exp(x.g) * s.C + outer(w, x.v)
    local q = x.q / flin.sqrt(size(x.q, "k"))
    local p = exp(dot(x.readout, rotate(dot(A, q), phi)))
    local c = rotate(dot(p / sum(p), x.readout), -phi)
    return { A = A, C = C, phi = phi }, dot(c, C)
  end,
}
