-- Titans' memory (Behrouz et al., 2024), linear: surprise with momentum eta,
-- forgetting alpha.
return {
  size = { k = 3, v = 2 }, road = "chunks",
  oracle = function (x, s)
    for j = 1, #x.v do
      local e = x.v[j]
      for i = 1, #x.k do e = e - x.k[i] * s.S[i][j] end
      for i = 1, #x.k do
        s.M[i][j] = x.eta * s.M[i][j] + x.theta * x.k[i] * e
        s.S[i][j] = (1 - x.alpha) * s.S[i][j] + s.M[i][j]
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
