-- PaTH (Yang et al., 2025) as a linear rule: reflections of their own keys w,
-- and a forget gate.
return {
  size = { k = 3, v = 2 }, road = "chunks",
  variant = function (flin)
    local exp, dot, outer = flin.exp, flin.dot, flin.outer
    return flin.variant {
      name = "path",
      input = { q = "t k", k = "t k", v = "t v", w = "t k : unit_norm",
                beta = "t : unit", f = "t : log_decay" },
      state = { S = "k v" },
      step = function (x, s)
        local S = s.S - outer(2 * x.beta * x.w, dot(x.w, s.S))
        S = exp(x.f) * S + outer(x.k, x.v)
        return { S = S }, dot(x.q, S)
      end,
    }
  end,
  oracle = function (x, s)
    for j = 1, #x.v do
      local r = 0
      for i = 1, #x.k do r = r + x.w[i] * s.S[i][j] end
      for i = 1, #x.k do
        s.S[i][j] = math.exp(x.f) * (s.S[i][j] - 2 * x.beta * x.w[i] * r)
                  + x.k[i] * x.v[j]
      end
    end
    local y = {}
    for j = 1, #x.v do
      y[j] = 0
      for i = 1, #x.q do y[j] = y[j] + x.q[i] * s.S[i][j] end
    end
    return y
  end,
}
