-- flin.variant, of a random step that need not read all of its inputs: those
-- that nothing depends on are not declared.
local flin = require "flin"

return function (def)
  local dropped, step = {}, def.step
  def.step = function (x, s)
    return step(setmetatable({}, { __index = function (_, name)
      local axes = dropped[name]
      if not axes then return x[name] end
      return axes:find "k" and x.k or axes:find "v" and x.v or 0.5
    end }), s)
  end
  while true do
    local ok, v = pcall(flin.variant, def)
    local name = not ok and tostring(v):match
                 "input '(%w+)': the step does not depend on it"
    if ok then return v end
    if not name then error(v, 0) end
    dropped[name], def.input[name] = def.input[name], nil
  end
end
