-- Gated slot attention (Zhang et al., NeurIPS 2024, arXiv:2409.07146): two
-- gated passes through m slots, a softmax over the slots between them.
local flin = require "flin"
local exp, dot, outer, sum = flin.exp, flin.dot, flin.outer, flin.sum

return flin.variant {
  name  = "gsa",
  input = { q = "t k", k = "t k", v = "t v", g = "t m : log_decay" },
  state = { A = "m k", C = "m v" },
  step  = function (x, s)
    local f = exp(x.g)
    local A = f * s.A + outer(1 - f, x.k)
    local C = f * s.C + outer(1 - f, x.v)
    local p = exp(dot(A, x.q))
    return { A = A, C = C }, dot(p, C) / sum(p)
  end,
}
