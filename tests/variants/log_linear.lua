-- Log-linear attention (Guo et al., 2025): sums over the Fenwick intervals of
-- what came before, each level with a weight; here up to 31 tokens. Where a
-- token's number ends an interval, levels hand down what they hold (whole(m)):
-- six states in each other, of which 6 x 6 numbers a token are multiplied up
-- along the chunk by CUDA cores.
local LEVELS <const> = 5
return {
  size = { k = 3, v = 2, l = LEVELS + 1 }, road = "chunks",
  variant = function (flin)
    local exp, dot, outer = flin.exp, flin.dot, flin.outer
    local state = { n = "" }
    for m = 0, LEVELS do state["S" .. m] = "k v" end
    return flin.variant {
      name = "log_linear", state = state,
      input = { q = "t k", k = "t k", v = "t v", g = "t : log_decay",
                lambda = "t l" },
      step = function (x, s)
        local f, now = exp(x.g), { n = s.n + 1, S0 = outer(x.k, x.v) }
        local function whole(m)         -- n is a multiple of 2^m
          return flin.eq(flin.floor(s.n / 2 ^ m), s.n / 2 ^ m)
        end
        local y, below = flin.at(x.lambda, "l", 1) * dot(x.q, now.S0), s.S0
        for m = 1, LEVELS do
          local S = s["S" .. m]
          now["S" .. m] = flin.where(whole(m - 1),
                                     flin.where(whole(m), 0, f * below), f * S)
          below = below + S
          y = y + flin.at(x.lambda, "l", m + 1) * dot(x.q, now["S" .. m])
        end
        return now, y
      end,
    }
  end,
  oracle = function (x, s)              -- beside the states, the tokens so far
    local y, past = {}, s.past or {}
    s.past, past[s.n + 1] = past, { x.k, x.v, s.n, 1 }
    for m = 0, LEVELS do s["S" .. m] = { { 0, 0 }, { 0, 0 }, { 0, 0 } } end
    for j = 1, #x.v do y[j] = 0 end
    for t, p in ipairs(past) do
      local m, bits = 0, p[3] ~ s.n     -- how long what they differ in is
      while bits >> m > 0 do m = m + 1 end
      p[4] = t <= s.n and p[4] * math.exp(x.g) or 1
      for i, row in ipairs(s["S" .. m]) do for j = 1, #x.v do
        row[j] = row[j] + p[4] * p[1][i] * p[2][j]
        y[j] = y[j] + x.lambda[m + 1] * x.q[i] * p[4] * p[1][i] * p[2][j]
      end end
    end
    s.n = s.n + 1
    return y
  end,
}
