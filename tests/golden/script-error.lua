local function inner(x)
  return x.y.z
end
local function outer(x)
  local r = inner(x)
  return r
end
outer {}
