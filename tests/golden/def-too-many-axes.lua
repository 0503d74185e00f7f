local flin = require "flin"
local axes = {}
for i = 1, 40 do
  axes[i] = "a" .. i
end
flin.variant {
  name = "bad",
  input = { q = "t " .. table.concat(axes, " ") },
  step = function (x) return {}, x.q end,
}
