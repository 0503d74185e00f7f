-- HGRN (Qin et al., 2023): a gated mean of each channel.
return {
  size = { v = 3 }, road = "chunks",
  variant = function (flin)
    local exp = flin.exp
    return flin.variant {
      name = "hgrn",
      input = { v = "t v", g = "t v : log_decay", o = "t v" },
      state = { h = "v" },
      step = function (x, s)
        local h = exp(x.g) * s.h + (1 - exp(x.g)) * x.v
        return { h = h }, flin.sigmoid(x.o) * h
      end,
    }
  end,
  oracle = function (x, s)
    local y = {}
    for j = 1, #x.v do
      local f = math.exp(x.g[j])
      s.h[j] = f * s.h[j] + (1 - f) * x.v[j]
      y[j] = s.h[j] / (1 + math.exp(-x.o[j]))
    end
    return y
  end,
}
