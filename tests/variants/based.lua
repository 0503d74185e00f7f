-- Based (Arora et al., 2024): e^(q k) to the second order, as three sums. Its
-- state of three axes is no matrix that a kernel by roles has: as a polynomial
-- of scores, over pairs of tokens, it is on tensor cores.
return {
  size = { k = 3, v = 2, l = 3 }, road = "chunks",
  variant = function (flin)
    local dot, outer = flin.dot, flin.outer
    return flin.variant {
      name = "based",
      input = { q = "t k", k = "t k", v = "t v" },
      state = { N = "v", A = "k v", C = "k l v" },
      step = function (x, s)
        local q2, k2 = flin.rename(x.q, "k", "l"), flin.rename(x.k, "k", "l")
        local N, A = s.N + x.v, s.A + outer(x.k, x.v)
        local C = s.C + outer(outer(x.k, k2), x.v)
        return { N = N, A = A, C = C },
               N + dot(x.q, A) + dot(outer(x.q, q2), C) / 2
      end,
    }
  end,
  oracle = function (x, s)
    local y = {}
    for j = 1, #x.v do
      s.N[j] = s.N[j] + x.v[j]
      y[j] = s.N[j]
      for i = 1, #x.k do
        s.A[i][j] = s.A[i][j] + x.k[i] * x.v[j]
        y[j] = y[j] + x.q[i] * s.A[i][j]
        for l = 1, #x.k do
          s.C[i][l][j] = s.C[i][l][j] + x.k[i] * x.k[l] * x.v[j]
          y[j] = y[j] + x.q[i] * x.q[l] * s.C[i][l][j] / 2
        end
      end
    end
    return y
  end,
}
