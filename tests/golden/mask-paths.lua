local flin = require "flin"
return flin.variant {
  name = "bad",
  mask = function (i, j, p)
    if i < j then return 0 end
    local y = 0
    for n = 1, 200 do
      if i - j < n then y = y + n end
    end
    return y
  end,
}
