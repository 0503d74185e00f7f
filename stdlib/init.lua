-- What of flin is written in Lua: the variants of the standard library, and
-- flin.attention with its pieces. Runs once, with the flin table and with what
-- is for flin's own Lua alone, which no script can reach (lang/open.c).
local flin, own = ...

local function sorted_names(t)
  local names = {}
  for name in pairs(t) do
    names[#names + 1] = name
  end
  table.sort(names)
  return table.concat(names, ", ")
end

-- What is wrong with the value, or nil; and what would be right.
local function fault(value, choice)
  if type(choice) == "table" then
    local texts = {}
    for i, c in ipairs(choice) do
      if value == c then
        return
      end
      texts[i] = type(c) == "string" and '"' .. c .. '"' or tostring(c)
    end
    return "one of " .. table.concat(texts, ", ")
  elseif math.type(choice) == "integer" then
    if math.type(value) ~= "integer" or value < 1 or value > 64 then
      return "a whole number from 1 to 64"
    end
  end
end

-- The options given, completed; `known` has for each name a default number
-- or text, the list of what is allowed (the default first), or "any". Errors
-- blame the caller of the function that asks.
local function options(what, given, known)
  given = given or {}
  if type(given) ~= "table" then
    error(what .. ": a table of options is wanted, not a " .. type(given), 3)
  end
  local out = {}
  for name, choice in pairs(known) do
    if type(choice) == "table" then
      out[name] = choice[1]
    elseif choice ~= "any" then
      out[name] = choice
    end
  end
  for name, value in pairs(given) do
    if known[name] == nil then
      error(string.format("%s: no option '%s'\n  help: it takes %s", what,
            tostring(name), next(known) and sorted_names(known) or "none"), 3)
    end
    local help = fault(value, known[name])
    if help then
      error(string.format("%s: %s = %s\n  help: %s", what, name,
                          tostring(value), help), 3)
    end
    out[name] = value
  end
  return out
end

local parts = { "initial", "decay", "feature_map", "transition", "attention" }
for _, name in ipairs(parts) do
  flin[name] = own.load(name, true)(flin, options)
end

-- A table of what these modules return, each loaded when first asked for; pairs
-- visits all. `names` is in order; a module is `folder` and its name.
local function library(what, names, folder)
  local known = {}
  for _, name in ipairs(names) do
    known[name] = true
  end
  return setmetatable({}, {
    __index = function (t, name)
      if not known[name] then
        error(string.format("%s has no '%s'\n  help: %s", what,
              tostring(name), own.suggest(name, "it has", names)), 2)
      end
      rawset(t, name, own.load(folder .. name)(flin))
      return rawget(t, name)
    end,
    __tostring = function ()
      return what .. ": " .. table.concat(names, " ")
    end,
    __pairs = function (t)
      local i = 0
      return function ()
        i = i + 1
        local name = names[i]
        if name then
          return name, t[name]
        end
      end
    end,
  })
end

-- flin.stdlib.NAME: a variant; flin.layers.NAME: a layer.
local is_part, layers = { init = true }, {}
for _, name in ipairs(parts) do
  is_part[name] = true
end
flin.stdlib_names = {}
for _, name in ipairs(own.modules) do
  if not is_part[name] and not name:find "/" then
    table.insert(flin.stdlib_names, name)
  end
  table.insert(layers, name:match "^layers/(.*)")
end
flin.stdlib = library("flin.stdlib", flin.stdlib_names, "")
flin.layers = library("flin.layers", layers, "layers/")

-- What is written in Lua beside the variants is loaded when first called. A
-- tail call, so that errors blame the caller.
local loaded = {}
local function later(module, entry)
  return function (...)
    if not loaded[module] then
      loaded[module] = own.load("lang/lua/" .. module)(flin, own)
    end
    return (entry and loaded[module][entry] or loaded[module])(...)
  end
end

own.rows = later("help", "rows")
own.meant = later("help", "meant")
flin.help = later("help", "of")
flin.luacats = later("help", "luacats")
flin.heat_map = later("mask", "heat_map")
own.picture = { mask = later "draw_mask", plan = later "draw_plan" }
for _, name in ipairs { "curves", "bars", "roofline" } do
  own.picture[name] = later("draw_chart", name)
end
flin.picture = {}
for name, draw in pairs(own.picture) do
  flin.picture[name] = draw
end
own.methods.bench = later "bench"
own.methods.gradcheck = later "gradcheck"
own.methods.initial = later "initial"
own.methods.sizes = later "sizes"
own.methods.mask = later("mask", "of")
own.methods.dag = later "dag"
own.methods.describe = later "describe"
own.json = later "json"
own.methods = nil
