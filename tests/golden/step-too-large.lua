local flin = require "flin"
return flin.variant {
  name  = "bad",
  input = { q = "t k", k = "t k", v = "t v" },
  state = { S = "k v" },
  step  = function (x, s)
    local y = x.q
    for i = 1, 30000 do
      y = flin.sin(y) + x.k
    end
    return { S = s.S }, y
  end,
}
