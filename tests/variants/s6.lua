-- S6 (Gu and Dao, 2023): Mamba's selective scan, a decay of each entry, of its
-- key and its value together: no product of matrices, K V scans by CUDA cores.
return {
  size = { k = 3, v = 2 }, road = "chunks",
  variant = function (flin)
    local exp, dot, outer = flin.exp, flin.dot, flin.outer
    return flin.variant {
      name = "s6",
      input = { C = "t k", B = "t k", v = "t v", dt = "t v : positive",
                A = "k v" },
      state = { S = "k v" },
      step = function (x, s)
        local S = exp(-x.dt * exp(x.A)) * s.S + outer(x.B, x.dt * x.v)
        return { S = S }, dot(x.C, S)
      end,
    }
  end,
  oracle = function (x, s)
    local y = {}
    for j = 1, #x.v do
      y[j] = 0
      for i = 1, #x.B do
        s.S[i][j] = math.exp(-x.dt[j] * math.exp(x.A[i][j])) * s.S[i][j]
                    + x.B[i] * x.dt[j] * x.v[j]
        y[j] = y[j] + x.C[i] * s.S[i][j]
      end
    end
    return y
  end,
}
