-- v:sizes: how long each axis is: as the definition or the options say, else
-- as it usually is.
local _, own = ...

-- What layers have where nothing else is said.
local USUAL <const> = { w = 4, v = function (size) return size.k end }

-- The axes of inputs and weights, in order.
local function axes_of(v)
  local list, has = {}, { t = true }
  for _, input in ipairs(v.inputs) do
    for axis in input.axes:gmatch "%S+" do
      if not has[axis] then list[#list + 1] = axis end
      has[axis] = true
    end
  end
  table.sort(list)
  return list
end

local function check(v, o, list)
  local has = {}
  for _, axis in ipairs(list) do has[axis] = true end
  for axis, n in pairs(o) do
    if not has[axis] then
      error(("%s: sizes: there is no axis '%s'\n  help: %s"):format(v.name,
            tostring(axis), own.suggest(tostring(axis), "axes", list)), 0)
    end
    if math.type(n) ~= "integer" or n < 1 then
      error(("%s: sizes: %s = %s: a whole number from 1 on is wanted"):format(
            v.name, axis, tostring(n)), 0)
    end
    if v.axes[axis] and v.axes[axis] ~= n then
      error(("%s: sizes: %s = %d: it is %d by the definition's `axes`"):format(
            v.name, axis, n, v.axes[axis]), 0)
    end
  end
end

local function usual_of(v, axis)
  return (own.usual(v) or {})[axis] or USUAL[axis]
end

-- A function's result, or a number.
local function usual_size(v, given, axis, size)
  local usual = usual_of(v, axis)
  if type(usual) ~= "function" then return usual end
  local n = usual(size)
  if math.type(n) == "float" and n == math.floor(n) then n = n // 1 | 0 end
  if math.type(n) == "integer" and n > 0 then return n end
  local words = {}
  for name, value in pairs(given) do
    words[#words + 1] = name .. " = " .. value
  end
  table.sort(words)
  error(("%s: axis '%s' would usually be %g long, with %s\n  help: sizes that"
         .. " divide, or %s = ... of its own"):format(v.name, axis,
        n, table.concat(words, ", "), axis), 0)
end

-- Of each axis its size, as it is asked for; `missing` is the error of one that
-- nothing tells.
local function sizes_of(v, o, missing)
  local found, under_way = {}, {}
  for axis, n in pairs(v.axes) do found[axis] = n or o[axis] or nil end
  return setmetatable({}, { __index = function (size, axis)
    if found[axis] or v.axes[axis] == nil then return found[axis] end
    if under_way[axis] then error(missing) end
    under_way[axis] = true
    local ok, n = pcall(usual_size, v, o, axis, size)
    under_way[axis] = nil
    if not ok or not n then error(n or missing, 0) end
    found[axis] = n
    return n
  end })
end

return function (v, o)
  o = o or {}
  if type(o) ~= "table" then
    error("sizes: a table of sizes is wanted, not a " .. type(o), 2)
  end
  local list, missing, all = axes_of(v), {}, {}
  check(v, o, list)
  local size = sizes_of(v, o, missing)
  for _, axis in ipairs(list) do
    local ok, n = pcall(function () return size[axis] end)
    if not ok and n ~= missing then error(n, 0) end
    if ok then all[axis] = n else missing[#missing + 1] = axis end
  end
  if #missing > 0 then
    local roots = {}
    for _, axis in ipairs(missing) do
      if not usual_of(v, axis) then roots[#roots + 1] = axis end
    end
    if #roots > 0 then missing = roots end
    error(("%s: nothing says how long %s %s\n  help: %s = ..."):format(
          v.name, #missing > 1 and "axes " .. table.concat(missing, ", ")
          or "axis " .. missing[1], #missing > 1 and "are" or "is",
          table.concat(missing, " = ..., ")), 0)
  end
  return all
end
