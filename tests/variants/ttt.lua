-- TTT-linear (Sun et al., 2024): a step of gradient descent through a norm (of
-- the mean square, here) for each token: the root of what is read of S bends.
return {
  size = { k = 3, v = 2 }, road = "is not linear in",
  variant = function (flin)
    local dot, outer = flin.dot, flin.outer
    return flin.variant {
      name = "ttt",
      input = { q = "t k", k = "t k", v = "t v", eta = "t : unit" },
      state = { S = "k v" },
      step = function (x, s)
        local z = dot(x.k, s.S)
        local r = flin.rsqrt(dot(z, z) + 1)
        local u = 2 * (r * z - x.v)
        local dz = r * u - r * r * r * dot(u, z) * z
        local S = s.S - outer(x.eta * x.k, dz)
        return { S = S }, dot(x.q, S)
      end,
    }
  end,
  oracle = function (x, s)
    local z, r, uz, u = {}, 1, 0, {}
    for j = 1, #x.v do
      z[j] = 0
      for i = 1, #x.k do z[j] = z[j] + x.k[i] * s.S[i][j] end
      r = r + z[j] ^ 2
    end
    r = r ^ -0.5
    for j = 1, #x.v do
      u[j] = 2 * (r * z[j] - x.v[j])
      uz = uz + u[j] * z[j]
    end
    for j = 1, #x.v do
      local dz = r * u[j] - r ^ 3 * uz * z[j]
      for i = 1, #x.k do s.S[i][j] = s.S[i][j] - x.eta * x.k[i] * dz end
    end
    local y = {}
    for j = 1, #x.v do
      y[j] = 0
      for i = 1, #x.q do y[j] = y[j] + x.q[i] * s.S[i][j] end
    end
    return y
  end,
}
