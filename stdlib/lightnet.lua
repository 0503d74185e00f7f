-- LightNet (Qin et al., 2024, arXiv:2405.21022): each key channel is a softmax
-- over the tokens so far, as sums of exp(k) v and exp(k) that are divided when
-- they are read.
local flin = require "flin"
local exp, dot, outer = flin.exp, flin.dot, flin.outer

return flin.variant {
  name  = "lightnet",
  input = { q = "t k", k = "t k", v = "t v" },
  state = { S = "k v", z = "k" },
  step  = function (x, s)
    local e = exp(x.k)
    local S, z = s.S + outer(e, x.v), s.z + e
    return { S = S, z = z }, dot(x.q / z, S)
  end,
}
