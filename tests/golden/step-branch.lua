local flin = require "flin"
return flin.variant {
  name  = "bad",
  input = { q = "t k", g = "t" },
  state = { S = "k v" },
  step  = function (x, s)
    local S = s.S
    if x.g < 0 then
      S = flin.exp(x.g) * S
    end
    return { S = S }, flin.dot(x.q, S)
  end,
}
