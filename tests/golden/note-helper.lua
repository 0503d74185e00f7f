-- A helper of the same file is where it happens.
local flin = require "flin"
local outer, dot = flin.outer, flin.dot

local function write(S, key, value)
  return S + outer(key * dot(value, S), value)
end

local v = flin.variant {
  name  = "helped",
  input = { q = "t k", k = "t k", v = "t v" },
  state = { S = "k v" },
  step  = function (x, s)
    local S = write(s.S, x.k, x.v)
    S = S + outer(x.k, dot(x.q, s.S))
    return { S = S }, dot(x.q, S)
  end,
}
error(v.form, 0)
