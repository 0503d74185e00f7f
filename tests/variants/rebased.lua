-- ReBased (Aksenov et al., 2024): learned quadratic features, normalised.
return {
  size = { k = 3, v = 2 }, road = "chunks",
  variant = function (flin)
    local dot, outer = flin.dot, flin.outer
    return flin.variant {
      name = "rebased",
      input = { q = "t k", k = "t k", v = "t v", c = "k", d = "k" },
      state = { S = "k v", z = "k" },
      step = function (x, s)
        local q, k = flin.square(x.c * x.q + x.d), flin.square(x.c * x.k + x.d)
        local S, z = s.S + outer(k, x.v), s.z + k
        return { S = S, z = z }, dot(q, S) / (dot(q, z) + 0.1)
      end,
    }
  end,
  oracle = function (x, s)
    local y, n = {}, 0.1
    for j = 1, #x.v do y[j] = 0 end
    for i = 1, #x.k do
      local q = (x.c[i] * x.q[i] + x.d[i]) ^ 2
      local k = (x.c[i] * x.k[i] + x.d[i]) ^ 2
      s.z[i] = s.z[i] + k
      n = n + q * s.z[i]
      for j = 1, #x.v do
        s.S[i][j] = s.S[i][j] + k * x.v[j]
        y[j] = y[j] + q * s.S[i][j]
      end
    end
    for j = 1, #x.v do y[j] = y[j] / n end
    return y
  end,
}
