-- A Kalman filter of each channel: the variance P bends, by what is known, as
-- the gain that it is divided by has P in it.
return {
  size = { v = 3 }, road = "is not linear in",
  variant = function (flin)
    return flin.variant {
      name = "kalman",
      input = { v = "t v", a = "v : unit", noise = "t v : unit" },
      state = { P = "v", m = "v" },
      step = function (x, s)
        local P = x.a * x.a * s.P + 1
        local gain = P / (P + x.noise + 0.1)
        local m = x.a * s.m
        return { P = (1 - gain) * P, m = m + gain * (x.v - m) },
               m + gain * (x.v - m)
      end,
    }
  end,
  oracle = function (x, s)
    local y = {}
    for j = 1, #x.v do
      local P = x.a[j] ^ 2 * s.P[j] + 1
      local gain, m = P / (P + x.noise[j] + 0.1), x.a[j] * s.m[j]
      s.P[j], s.m[j] = (1 - gain) * P, m + gain * (x.v[j] - m)
      y[j] = s.m[j]
    end
    return y
  end,
}
