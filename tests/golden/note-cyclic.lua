local flin = require "flin"
local v = flin.variant {
  name  = "cyclic",
  input = { q = "t k", g = "t" },
  state = { a = "", b = "" },
  step  = function (x, s)
    local a = s.a * s.b
    local b = s.b + s.a * x.g
    return { a = a, b = b }, a * x.q
  end,
}
error(tostring(v:plan { K = 16 }):match "token by token: [^\n]*", 0)
