local flin = require "flin"
flin.layer {
  input = { k = "t k", v = "t v" },
  weight = {},
  forward = function (x, w)
    local k = flin.unit_norm(x.k)
    return flin.stdlib.deltanet { q = k, k = k, v = x.v,
                                  beta = 1 / flin.size(k, "k") }
  end,
}
