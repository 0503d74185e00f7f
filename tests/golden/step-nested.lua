local flin = require "flin"
flin.variant {
  name  = "outside",
  input = { q = "t k" },
  step  = function (x)
    flin.variant {
      name  = "inside",
      input = { q = "t k" },
      step  = function (y) return {}, y.q + x.q end,
    }
    return {}, x.q
  end,
}
