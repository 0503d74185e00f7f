-- Slots that take turns: an angle goes on by each token, and a slot whose phase
-- is near is overwritten, in two decayed states; a softmax over slots reads.
return {
  size = { k = 3, v = 2, m = 4 }, road = "chunks",
  variant = function (flin)
    local exp, cos, dot, outer = flin.exp, flin.cos, flin.dot, flin.outer
    return flin.variant {
      name = "cyfa",
      input = { q = "t k", k = "t k", v = "t v", turn = "t", phase = "m" },
      state = { angle = ": angle", A = "m k", C = "m v" },
      step = function (x, s)
        local angle = s.angle + x.turn
        local near = exp(cos(angle - x.phase))
        local w = near / flin.sum(near)         -- 1 - w is of no known sign
        local A = (1 - w) * s.A + outer(w, x.k)
        local C = (1 - w) * s.C + outer(w, x.v)
        local p = exp(dot(A, x.q))
        return { angle = angle, A = A, C = C }, dot(p, C) / flin.sum(p)
      end,
    }
  end,
  oracle = function (x, s)
    local y, near, all, total = {}, {}, 0, 0
    s.angle = (s.angle + x.turn + math.pi) % (2 * math.pi) - math.pi
    for j = 1, #x.v do y[j] = 0 end
    for m, p in ipairs(x.phase) do
      near[m] = math.exp(math.cos(s.angle - p))
      all = all + near[m]
    end
    for m = 1, #near do
      local w, z = near[m] / all, 0
      for i = 1, #x.k do
        s.A[m][i] = (1 - w) * s.A[m][i] + w * x.k[i]
        z = z + s.A[m][i] * x.q[i]
      end
      total = total + math.exp(z)
      for j = 1, #x.v do
        s.C[m][j] = (1 - w) * s.C[m][j] + w * x.v[j]
        y[j] = y[j] + math.exp(z) * s.C[m][j]
      end
    end
    for j = 1, #x.v do y[j] = y[j] / total end
    return y
  end,
}
