-- Hawk's RG-LRU (De et al., 2024): a recurrence and an input gate a channel. A
-- softplus, two sigmoids, two exponentials and a root are its work forward.
return {
  size = { v = 3 }, road = "chunks",
  variant = function (flin)
    local exp = flin.exp
    return flin.variant {
      name = "hawk",
      input = { v = "t v", r = "t v", i = "t v", L = "v" },
      state = { h = "v" },
      step = function (x, s)
        local g = -8 * flin.softplus(x.L) * flin.sigmoid(x.r)
        local h = exp(g) * s.h
                + flin.sqrt(1.001 - exp(2 * g)) * flin.sigmoid(x.i) * x.v
        return { h = h }, h
      end,
    }
  end,
  oracle = function (x, s)
    local y = {}
    for j = 1, #x.v do
      local g = -8 * math.log(1 + math.exp(x.L[j])) / (1 + math.exp(-x.r[j]))
      s.h[j] = math.exp(g) * s.h[j] + (1.001 - math.exp(2 * g)) ^ 0.5
             / (1 + math.exp(-x.i[j])) * x.v[j]
      y[j] = s.h[j]
    end
    return y
  end,
}
