local flin = require "flin"
local dot, outer = flin.dot, flin.outer
local function write(S, k, v)
  local e = flin.probe("err", v - dot(k, S))
  return S + outer(k, e)
end
flin.variant {
  input = { q = "t k", k = "t k", v = "t v" },
  state = { S = "k v" },
  step = function (x, s)
    local S = write(write(s.S, x.k, x.v), x.q, x.v)
    return { S = S }, dot(x.q, S)
  end,
}
