-- flin: --sandbox --budget 100000
local forever = setmetatable({}, {
  __close = function ()
    while true do end
  end
})
while true do
  pcall(function ()
    local x <close> = forever
    error "out"
  end)
end
