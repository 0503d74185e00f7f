-- RWKV-4 (Peng et al., 2023): an exponential average: numerator, denominator
-- and the largest exponent, which keeps both in range: max(p - w, k) of each
-- channel, and decays that are made of it. Scans and exponentials are all of
-- its work, and no product of matrices.
return {
  size = { v = 3 }, road = "chunks",
  variant = function (flin)
    local exp = flin.exp
    return flin.variant {
      name = "rwkv4",
      input = { k = "t v", v = "t v", w = "v : unit", u = "v" },
      state = { a = "v", b = "v", p = "v" },
      step = function (x, s)
        local m = flin.max(s.p - x.w, x.k)
        local f, e = exp(s.p - x.w - m), exp(x.k - m)
        local a, b = f * s.a + e * x.v, f * s.b + e
        local n = flin.max(m, x.u)
        return { a = a, b = b, p = m },
               (exp(m - n) * a + exp(x.u - n) * x.v)
               / (exp(m - n) * b + exp(x.u - n))
      end,
    }
  end,
  oracle = function (x, s)
    local y = {}                    -- p is carried, a and b are relative to it
    for j = 1, #x.v do
      local m = math.max(s.p[j] - x.w[j], x.k[j])
      local a = math.exp(s.p[j] - x.w[j]) * s.a[j] + math.exp(x.k[j]) * x.v[j]
      local b = math.exp(s.p[j] - x.w[j]) * s.b[j] + math.exp(x.k[j])
      s.a[j], s.b[j], s.p[j] = a * math.exp(-m), b * math.exp(-m), m
      y[j] = (a + math.exp(x.u[j]) * x.v[j]) / (b + math.exp(x.u[j]))
    end
    return y
  end,
}
