local flin = require "flin"
flin.layer {
  input = { x = "t", k = "t k" },
  weight = {},
  forward = function (x, w)
    local v = flin.rename(x.k, "k", "v")
    local y = flin.stdlib.linear { q = x.k, k = x.k, v = x.x * v }
    if x.x == 3 then
      y = y + flin.stdlib.linear { q = x.k, k = x.k, v = v }
    end
    return y
  end,
}
