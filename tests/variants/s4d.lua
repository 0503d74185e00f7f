-- S4D (Gu et al., 2022): complex diagonal states of each channel, real and
-- imaginary part; constants of the head. Trained, what its keys decay and turn
-- by is multiplied up token by token, outside tensor cores: the gradient of an
-- angle is what is left of two sums, and differences of angles do not hold it.
return {
  size = { n = 2, v = 2 }, road = "chunks",
  variant = function (flin)
    local dot = flin.dot
    return flin.variant {
      name = "s4d",
      input = { v = "t v", g = "n : log_decay", w = "n", c = "n", d = "n" },
      state = { re = "n v", im = "n v" },
      step = function (x, s)
        local a = flin.exp(x.g)
        local cos, sin = a * flin.cos(x.w), a * flin.sin(x.w)
        local re = cos * s.re - sin * s.im + x.v
        local im = sin * s.re + cos * s.im
        return { re = re, im = im }, dot(x.c, re) - dot(x.d, im)
      end,
    }
  end,
  oracle = function (x, s)
    local y = {}
    for j = 1, #x.v do
      y[j] = 0
      for i = 1, #x.g do
        local a = math.exp(x.g[i])
        local c, d = a * math.cos(x.w[i]), a * math.sin(x.w[i])
        local re, im = s.re[i][j], s.im[i][j]
        s.re[i][j] = c * re - d * im + x.v[j]
        s.im[i][j] = d * re + c * im
        y[j] = y[j] + x.c[i] * s.re[i][j] - x.d[i] * s.im[i][j]
      end
    end
    return y
  end,
}
