-- Diagonal plus low rank (flash-linear-attention, RWKV-7 with any a and b):
-- S = diag(e^g) S + b a^T S + k v^T.
return {
  size = { k = 3, v = 2 }, road = "chunks",
  variant = function (flin)
    local exp, dot, outer = flin.exp, flin.dot, flin.outer
    return flin.variant {
      name = "dplr",
      input = { q = "t k", k = "t k", v = "t v", a = "t k : unit_norm",
                b = "t k : unit_norm", g = "t k : log_decay" },
      state = { S = "k v" },
      step = function (x, s)
        local S = exp(x.g) * s.S + outer(x.b, dot(x.a, s.S)) + outer(x.k, x.v)
        return { S = S }, dot(x.q, S)
      end,
    }
  end,
  oracle = function (x, s)
    local aS = {}
    for j = 1, #x.v do
      aS[j] = 0
      for i = 1, #x.k do aS[j] = aS[j] + x.a[i] * s.S[i][j] end
    end
    for i = 1, #x.k do
      for j = 1, #x.v do
        s.S[i][j] = math.exp(x.g[i]) * s.S[i][j] + x.b[i] * aS[j]
                  + x.k[i] * x.v[j]
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
