-- Gated Oja (flash-linear-attention): forgets each column, and learns keys of
-- values.
return {
  size = { k = 3, v = 2 }, road = "chunks",
  oracle = function (x, s)
    for i = 1, #x.k do
      local r = x.k[i]
      for j = 1, #x.v do
        s.S[i][j] = math.exp(x.gv[j]) * s.S[i][j]
        r = r - s.S[i][j] * x.v[j]
      end
      for j = 1, #x.v do s.S[i][j] = s.S[i][j] + x.beta * r * x.v[j] end
    end
    local y = {}
    for j = 1, #x.v do
      y[j] = 0
      for i = 1, #x.q do y[j] = y[j] + x.q[i] * s.S[i][j] end
    end
    return y
  end,
}
