-- MesaNet (von Oswald et al., 2025): o = H_kv^T (H_kk + 1)^-1 q, by conjugate
-- gradients, two steps of them. Each is a read made of the one before: all of
-- its kernels are on tensor cores, and move what they hand one another.
return {
  size = { k = 3, l = 3, v = 2 }, road = "chunks",
  variant = function (flin)
    local exp, dot, outer = flin.exp, flin.dot, flin.outer
    return flin.variant {
      name = "mesa_net",
      input = { q = "t k", k = "t k : unit_norm", v = "t v",
                g = "t : log_decay" },
      state = { A = "k l", S = "k v" },
      step = function (x, s)
        local A = exp(x.g) * s.A + outer(x.k, flin.rename(x.k, "k", "l"))
        local S = exp(x.g) * s.S + outer(x.k, x.v)
        local z, r, p = 0, x.q, x.q
        for _ = 1, 2 do
          local Ap = dot(A, flin.rename(p, "k", "l")) + p
          local rr = dot(r, r)
          local step = rr / dot(p, Ap)
          z, r = z + step * p, r - step * Ap
          p = r + dot(r, r) / rr * p
        end
        return { A = A, S = S }, dot(z, S)
      end,
    }
  end,
  oracle = function (x, s)
    local K, f, z, r, p = #x.k, math.exp(x.g), {}, {}, {}
    for i = 1, K do
      z[i], r[i], p[i] = 0, x.q[i], x.q[i]
      for l = 1, K do s.A[i][l] = f * s.A[i][l] + x.k[i] * x.k[l] end
      for j = 1, #x.v do s.S[i][j] = f * s.S[i][j] + x.k[i] * x.v[j] end
    end
    for _ = 1, 2 do
      local Ap, rr, pAp, now = {}, 0, 0, 0
      for i = 1, K do
        Ap[i], rr = p[i], rr + r[i] ^ 2
        for l = 1, K do Ap[i] = Ap[i] + s.A[i][l] * p[l] end
        pAp = pAp + p[i] * Ap[i]
      end
      for i = 1, K do
        z[i], r[i] = z[i] + rr / pAp * p[i], r[i] - rr / pAp * Ap[i]
        now = now + r[i] ^ 2
      end
      for i = 1, K do p[i] = r[i] + now / rr * p[i] end
    end
    x = { q = z, v = x.v }
    local y = {}
    for j = 1, #x.v do
      y[j] = 0
      for i = 1, #x.q do y[j] = y[j] + x.q[i] * s.S[i][j] end
    end
    return y
  end,
}
