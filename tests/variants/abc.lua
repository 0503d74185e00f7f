-- Attention with bounded memory (Peng et al., 2022): keys and values averaged
-- in m slots by weights e^w, and a softmax over the slots.
return {
  size = { k = 3, v = 2, m = 4 }, road = "chunks",
  oracle = function (x, s)
    local y, all = {}, 0
    for j = 1, #x.v do y[j] = 0 end
    for m, w in ipairs(x.s) do
      local e, z = math.exp(w), 0
      s.n[m] = s.n[m] + e
      for i = 1, #x.k do
        s.A[m][i] = s.A[m][i] + e * x.k[i]
        z = z + s.A[m][i] / s.n[m] * x.q[i]
      end
      all = all + math.exp(z)
      for j = 1, #x.v do
        s.C[m][j] = s.C[m][j] + e * x.v[j]
        y[j] = y[j] + math.exp(z) * s.C[m][j] / s.n[m]
      end
    end
    for j = 1, #x.v do y[j] = y[j] / all end
    return y
  end,
}
