-- v:initial: constants and weights as the definition lets them begin, and what
-- layers make of other inputs at first, of each token the same.
local flin, own = ...

-- How long each axis is: as the options say, whose names are as v:random's.
local function sizes_of(v, o, axes)
  local size = {}
  for axis in pairs(axes) do
    size[axis] = v.axes[axis] or o[axis]
                 or #axis == 1 and o[axis:upper()] or o.size or 16
  end
  return size
end

local function check(v, o, axes)
  local known, list = { seed = true, dtype = true, size = true }, {}
  for axis in pairs(axes) do
    known[axis] = true
    if #axis == 1 then known[axis:upper()] = true end
  end
  for name in pairs(known) do list[#list + 1] = name end
  table.sort(list)
  for name, value in pairs(o) do
    if not known[name] then
      error(("initial: no option '%s'\n  help: %s"):format(tostring(name),
            own.suggest(tostring(name), "options", list)), 3)
    end
    if name ~= "dtype" and (math.type(value) ~= "integer" or value < 1
                            and name ~= "seed") then
      error(("initial: %s = %s: a whole number from 1 on is wanted"):format(
            name, tostring(value)), 3)
    end
  end
end

-- But for that of tokens.
local function words(text)
  local list = {}
  for word in text:gmatch "%S+" do
    if word ~= "t" then list[#list + 1] = word end
  end
  return list
end

-- All numbers of it as f gives them, the last axis first to move.
local function nested(f, name, axes, size, uniform, normal)
  local at = { size = size, uniform = uniform, normal = normal,
               last = axes[#axes] }
  local function level(i)
    if i > #axes then
      local x = f(at)
      if type(x) ~= "number" then
        error(("initial: '%s' gives a %s, where a number is wanted"):format(
              name, type(x)), 0)
      end
      return x
    end
    local row = {}
    for n = 1, size[axes[i]] do
      at[axes[i]] = n
      row[n] = level(i + 1)
    end
    return row
  end
  return level(1)
end

return function (v, o)
  o = o or {}
  if type(o) ~= "table" then
    error("initial: a table of options is wanted, not a " .. type(o), 2)
  end
  local axes = { h = not v.is_layer or nil }
  for axis in pairs(v.axes) do axes[axis] = true end
  check(v, o, axes)
  local size, given, out = sizes_of(v, o, axes), own.initial(v) or {}, {}
  local uniform, normal = own.draws(o.seed or 1)
  local as = { dtype = o.dtype or "float32" }
  for _, input in ipairs(v.inputs) do
    local name, list, f = input.name, words(input.axes), given[input.name]
    if not v.is_layer then table.insert(list, 1, "h") end
    if type(f) == "number" then
      local shape = {}
      for i, axis in ipairs(list) do shape[i] = size[axis] end
      out[name] = flin.full(shape, f, as)
    elseif f then
      out[name] = flin.tensor(nested(f, name, list, size, uniform, normal), as)
    end
  end
  return out
end
