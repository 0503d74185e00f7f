-- Cyclic flow attention (Chen, 2026): two passes through slots that a clock
-- turns, a readout and a softmax between: products on tensor cores, in kernels
-- that move what they hand one another.
return {
  size = { k = 3, v = 2, m = 4, p = 2, r = 3 }, road = "chunks",
  oracle = function (x, s)
    local f, M, z, c, y = math.exp(x.g), #x.atom, {}, {}, {}
    local function turned(a, sign)                -- pairs, by each one's angle
      local b = {}
      for i = 1, M, 2 do
        local p = sign * s.phi[(i + 1) // 2]
        local cos, sin = math.cos(p), math.sin(p)
        b[i] = cos * a[i] - sin * a[i + 1]
        b[i + 1] = sin * a[i] + cos * a[i + 1]
      end
      return b
    end
    for p, rate in ipairs(x.rate) do
      s.phi[p] = (s.phi[p] + rate * x.turn + math.pi) % (2 * math.pi) - math.pi
    end
    for m, w in ipairs(turned(x.atom, -1)) do
      z[m], c[m] = 0, 0
      for i = 1, #x.k do
        s.A[m][i] = f * s.A[m][i] + x.beta * w * x.k[i]
        z[m] = z[m] + s.A[m][i] * x.q[i] * (#x.k) ^ -0.5
      end
      for j = 1, #x.v do
        s.C[m][j] = f * s.C[m][j] + x.beta * w * x.v[j]
      end
    end
    z = turned(z, 1)
    local total, e = 0, {}
    for r, row in ipairs(x.readout) do
      e[r] = 0
      for m = 1, M do e[r] = e[r] + row[m] * z[m] end
      e[r] = math.exp(e[r])
      total = total + e[r]
    end
    for r, row in ipairs(x.readout) do
      for m = 1, M do c[m] = c[m] + e[r] / total * row[m] end
    end
    c = turned(c, -1)
    for j = 1, #x.v do
      y[j] = 0
      for m = 1, M do y[j] = y[j] + c[m] * s.C[m][j] end
    end
    return y
  end,
}
