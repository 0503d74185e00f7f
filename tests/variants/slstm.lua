-- sLSTM of xLSTM (Beck et al., 2024): gates see the last output, and bend it.
return {
  size = { v = 3 }, road = "is not linear in",
  variant = function (flin)
    local exp = flin.exp
    return flin.variant {
      name = "slstm",
      input = { z = "t v", i = "t v", f = "t v", o = "t v", r = "v" },
      state = { c = "v", n = "v", h = "v" },
      step = function (x, s)
        local i = exp(flin.tanh(x.i + x.r * s.h))
        local f = flin.sigmoid(x.f + x.r * s.h)
        local c = f * s.c + i * flin.tanh(x.z + x.r * s.h)
        local n = f * s.n + i
        local h = flin.sigmoid(x.o) * c / n
        return { c = c, n = n, h = h }, h
      end,
    }
  end,
  oracle = function (x, s)
    local function sigmoid(a) return 1 / (1 + math.exp(-a)) end
    local function tanh(a) return 2 * sigmoid(2 * a) - 1 end
    local y = {}
    for j = 1, #x.z do
      local rh = x.r[j] * s.h[j]
      local i, f = math.exp(tanh(x.i[j] + rh)), sigmoid(x.f[j] + rh)
      s.c[j] = f * s.c[j] + i * tanh(x.z[j] + rh)
      s.n[j] = f * s.n[j] + i
      s.h[j] = sigmoid(x.o[j]) * s.c[j] / s.n[j]
      y[j] = s.h[j]
    end
    return y
  end,
}
