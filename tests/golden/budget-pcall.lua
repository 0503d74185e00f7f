-- flin: --sandbox --budget 100000
while true do
  pcall(function ()
    while true do end
  end)
end
