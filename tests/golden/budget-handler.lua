-- flin: --sandbox --budget 100000
xpcall(error, function ()
  while true do end
end)
