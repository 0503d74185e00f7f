-- LinOSS (Rusch and Rus, 2025): a forced oscillator a channel, implicit and
-- explicit by turns. A channel's two states are multiplied by 2 x 2 numbers a
-- token, d z and -a d p among them, one token after another, and no keys are
-- summed over: there is nothing that tensor cores do.
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
