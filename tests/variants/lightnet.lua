-- LightNet (Qin et al., 2024): GLA with k = e^(s - z), g = z_before - z, z the
-- logarithm of the sum of e^s: sums of both, divided when they are read.
return {
  size = { k = 3, v = 2 }, road = "chunks",
  oracle = function (x, s)
    local y = {}
    for j = 1, #x.v do y[j] = 0 end
    for i = 1, #x.k do
      local old = s.z[i]
      s.z[i] = old + math.exp(x.k[i])
      for j = 1, #x.v do          -- the mean so far; S holds it times z
        local before = old > 0 and s.S[i][j] / old or 0
        local mean = old / s.z[i] * before + math.exp(x.k[i]) / s.z[i] * x.v[j]
        s.S[i][j] = mean * s.z[i]
        y[j] = y[j] + x.q[i] * mean
      end
    end
    return y
  end,
}
