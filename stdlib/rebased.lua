-- ReBased (Aksenov et al., ACL 2024, arXiv:2402.10644): learned quadratic
-- features, and y divided by the sum of the weights.
local flin = require "flin"
local dot, outer, square = flin.dot, flin.outer, flin.square

return flin.variant {
  name  = "rebased",
  input = { q = "t k", k = "t k", v = "t v", gamma = "k", beta = "k" },
  state = { S = "k v", z = "k" },
  initial = { gamma = 1, beta = 0 },
  step  = function (x, s)
    local q = square(x.gamma * flin.layer_norm(x.q) + x.beta)
    local k = square(x.gamma * flin.layer_norm(x.k) + x.beta)
    local S, z = s.S + outer(k, x.v), s.z + k
    return { S = S, z = z }, dot(q, S) / (dot(q, z) + 1e-5)
  end,
}
