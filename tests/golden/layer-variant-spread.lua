local flin = require "flin"
flin.layer {
  input = { k = "t k", v = "t h v", g = "t", lambda = "t" },
  weight = {},
  forward = function (x, w)
    return flin.stdlib.trapezoidal_gla {
      q = x.k, k = x.k, v = x.v, g = x.g, lambda = x.lambda
    }
  end,
}
