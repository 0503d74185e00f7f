-- What editors are told (`flin --luacats`): Lua that runs, in which each public
-- function stands, and classes whose fields are those of what calls return.
local flin = require "flin"
local count = require "support.count"
local check <const> = count.check

local text = flin.luacats()
local path = os.tmpname()
do
  local f <close> = assert(io.open(path, "w"))
  f:write(text)
end
local ok, stub = pcall(dofile, path)
os.remove(path)
check("runs", ok, stub)

-- ---- functions ----

local INSIDE <const> = { commands = true, layers = true, stdlib = true }

local function same_functions(where, live, told)
  for name, x in pairs(live) do
    if type(x) == "function" then
      check(where .. name .. " is told", type(told[name]) == "function")
    elseif type(x) == "table" and not INSIDE[name] and #x == 0 then
      check(where .. name .. " is told", type(told[name]) == "table")
      same_functions(where .. name .. ".", x, told[name] or {})
    end
  end
  for name, x in pairs(told) do
    check(where .. name .. " is there", type(live[name]) == type(x))
  end
end
same_functions("flin.", flin, stub)

local gdn <const> = flin.stdlib.gated_deltanet
local t <const> = flin.ones(2, 3)
local OF <const> = { Variant = gdn, Tensor = t,
                     Game = flin.pebble.game(4) }
for class, name in text:gmatch "\nfunction (%u%a+):([%w_]+)%(" do
  check(class .. ":" .. name .. " is there",
        type(OF[class][name]) == "function")
end

-- ---- classes ----

local classes, class = {}, nil
for line in text:gmatch "[^\n]+" do
  local name = line:match "^%-%-%-@class flin%.(%a+)$"
  if name or not line:find "^%-%-%-@" then
    class = name and {} or nil
    classes[name or ""] = class
  elseif class and line:find "^%-%-%-@field" then
    local field, mark, kind = line:match "^%-%-%-@field ([%w_]+)(%??) (%S+)"
    class[field or "*"] = { optional = mark == "?" or (kind or ""):find "%?$",
                            kind = (kind or ""):gsub("%?$", "") }
  end
end

local function is_a(kind, x)
  if kind == "integer" then
    return math.type(x) == "integer"
  elseif kind == "number" or kind == "string" or kind == "boolean" then
    return type(x) == kind
  elseif kind:find "^\"" then
    return kind:find('"' .. tostring(x) .. '"', 1, true)
  elseif kind == "flin.Tensor" then
    return flin.is_tensor(x)
  end
  return type(x) == "table" or type(x) == "userdata"
end

local seen = {}

local function same_fields(name, x)
  local fields = classes[name]
  seen[name] = true
  for key, field in pairs(fields) do
    if key ~= "*" and x[key] == nil then
      check(("%s.%s is there"):format(name, key), field.optional)
    elseif key ~= "*" then
      check(("%s.%s is a %s"):format(name, key, field.kind),
            is_a(field.kind, x[key]), x[key])
      local inner = field.kind:match "^flin%.(%a+)"
      local list = field.kind:find "%[%]$" and x[key] or { x[key] }
      for _, one in ipairs(inner and classes[inner] and list or {}) do
        same_fields(inner, one)
      end
    end
  end
  for key in pairs(type(x) == "table" and x or {}) do
    check(("%s.%s is told"):format(name, key), fields[key] or fields["*"])
  end
end

local inputs = gdn:random { T = 4 }
inputs.dy = gdn:forward(inputs)
same_fields("Plan", gdn:plan { backward = true, machine = "h200" })
same_fields("Check", gdn:check { T = 4 })
same_fields("Gradcheck", gdn:gradcheck { T = 4, K = 2, V = 2 })
same_fields("Bench", gdn:bench { T = 8, seconds = 0 })
same_fields("Io", gdn:io { T = 64, backward = true })
same_fields("Description", gdn:describe())
same_fields("Gradients", gdn:backward(inputs))
local report = flin.mask_report(function (i, j) return i < j and 0 or 1 end)
same_fields("MaskReport", report)
same_fields("MaskProduct", report[1])
same_fields("Variant", gdn)
same_fields("Tensor", t)
same_fields("Stdlib", flin.stdlib)
same_fields("Layers", flin.layers)
for name in pairs(classes) do     -- Compiled takes NVRTC, which need not be
  check("looked at: " .. name, seen[name] or name == "Compiled"
        or name == "Definition" or name == "Value" or name == "Game")
end

count.finish()
