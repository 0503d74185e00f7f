-- Gated slot attention (Zhang et al., 2024): two gated passes through m slots,
-- a softmax between.
return {
  size = { k = 3, v = 2, m = 4 }, road = "chunks",
  oracle = function (x, s)
    local y, all = {}, 0
    for j = 1, #x.v do y[j] = 0 end
    for n = 1, #x.g do
      local f, z = math.exp(x.g[n]), 0
      for i = 1, #x.k do
        s.A[n][i] = f * s.A[n][i] + (1 - f) * x.k[i]
        z = z + s.A[n][i] * x.q[i]
      end
      all = all + math.exp(z)
      for j = 1, #x.v do
        s.C[n][j] = f * s.C[n][j] + (1 - f) * x.v[j]
        y[j] = y[j] + math.exp(z) * s.C[n][j]
      end
    end
    for j = 1, #x.v do y[j] = y[j] / all end
    return y
  end,
}
