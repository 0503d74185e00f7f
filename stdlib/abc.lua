-- Attention with bounded memory (Peng et al., ACL 2022, arXiv:2110.02488): keys
-- and values averaged in m slots by the weights exp(s), and a softmax over the
-- slots.
local flin = require "flin"
local exp, dot, outer, sum = flin.exp, flin.dot, flin.outer, flin.sum

return flin.variant {
  name  = "abc",
  input = { q = "t k", k = "t k", v = "t v", s = "t m" },
  state = { n = "m", A = "m k", C = "m v" },
  step  = function (x, s)
    local e = exp(x.s)
    local n, A, C = s.n + e, s.A + outer(e, x.k), s.C + outer(e, x.v)
    local p = exp(dot(A, x.q) / n)
    return { n = n, A = A, C = C }, dot(p / n, C) / sum(p)
  end,
}
