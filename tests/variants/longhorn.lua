-- Longhorn (Liu et al., 2024): online regression, solved for each channel, the
-- diagonal of k k^T alone: each entry of S has a decay of its own, 1 - k^2 e of
-- its key and its value. That is no decay of rows times one of columns, so no
-- product of matrices: K V numbers a token are multiplied up by CUDA cores.
-- With all of k k^T it is a delta rule with a rate of each value, in chunks.
return {
  size = { k = 3, v = 2 }, road = "chunks",
  variant = function (flin)
    local dot, outer = flin.dot, flin.outer
    return flin.variant {
      name = "longhorn",
      input = { q = "t k", k = "t k", v = "t v", beta = "t v : unit" },
      state = { S = "k v" },
      step = function (x, s)
        local e = x.beta / (1 + x.beta * dot(x.k, x.k))
        local S = (1 - outer(x.k * x.k, e)) * s.S + outer(x.k, e * x.v)
        return { S = S }, dot(x.q, S)
      end,
    }
  end,
  oracle = function (x, s)
    local kk = 0
    for i = 1, #x.k do kk = kk + x.k[i] ^ 2 end
    for i = 1, #x.k do
      for j = 1, #x.v do
        local e = x.beta[j] / (1 + x.beta[j] * kk)
        s.S[i][j] = (1 - e * x.k[i] ^ 2) * s.S[i][j] + e * x.v[j] * x.k[i]
      end
    end
    local y = {}
    for j = 1, #x.v do
      y[j] = 0
      for i = 1, #x.q do y[j] = y[j] + x.q[i] * s.S[i][j] end
    end
    return y
  end,
}
