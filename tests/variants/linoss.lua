-- LinOSS (Rusch and Rus, 2025): a forced oscillator a channel, implicit and
-- explicit by turns.
return {
  size = { v = 3 }, road = "chunks",
  variant = function (flin)
    return flin.variant {
      name = "linoss",
      input = { v = "t v", a = "v : unit", d = "v : unit" },
      state = { z = "v", p = "v" },
      step = function (x, s)
        local z = s.z + x.d * (x.v - x.a * s.p)
        local p = s.p + x.d * z
        return { z = z, p = p }, p
      end,
    }
  end,
  oracle = function (x, s)
    local y = {}
    for j = 1, #x.v do
      s.z[j] = s.z[j] + x.d[j] * (x.v[j] - x.a[j] * s.p[j])
      s.p[j] = s.p[j] + x.d[j] * s.z[j]
      y[j] = s.p[j]
    end
    return y
  end,
}
