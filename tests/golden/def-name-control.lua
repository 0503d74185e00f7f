local flin = require "flin"
return flin.variant {
  name  = "two\nlines",
  input = { q = "t k" },
  step  = function (x, s)
    return {}, x.q
  end,
}
