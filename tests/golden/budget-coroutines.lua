-- flin: --sandbox --budget 1000000
local function deeper(n)
  if n == 0 then
    return
  end
  for i = 1, 20 do
    coroutine.wrap(deeper)(n - 1)
  end
end
deeper(5)
