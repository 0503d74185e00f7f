-- S4D (Gu et al., 2022): complex diagonal states of each channel, real and
-- imaginary part; constants of the head.
return {
  size = { n = 2, v = 2 }, road = "chunks",
  variant = function (flin)
    local dot = flin.dot
    return flin.variant {
      name = "s4d",
      input = { v = "t v", a = "n : unit", w = "n", c = "n" },
      state = { re = "n v", im = "n v" },
      step = function (x, s)
        local cos, sin = x.a * flin.cos(x.w), x.a * flin.sin(x.w)
        local re = cos * s.re - sin * s.im + x.v
        local im = sin * s.re + cos * s.im
        return { re = re, im = im }, dot(x.c, re) - dot(x.a, im)
      end,
    }
  end,
  oracle = function (x, s)
    local y = {}
    for j = 1, #x.v do
      y[j] = 0
      for i = 1, #x.a do
        local c, d = x.a[i] * math.cos(x.w[i]), x.a[i] * math.sin(x.w[i])
        local re, im = s.re[i][j], s.im[i][j]
        s.re[i][j] = c * re - d * im + x.v[j]
        s.im[i][j] = d * re + c * im
        y[j] = y[j] + x.c[i] * s.re[i][j] - x.a[i] * s.im[i][j]
      end
    end
    return y
  end,
}
