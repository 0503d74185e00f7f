-- What reports hold, as JSON: tables, tensors (nested lists), numbers, texts.
-- A table without names is a list; what is infinite is written as 1e999, and
-- what is no number as null.
local flin = ...

local ESCAPE <const> = { ['"'] = '\\"', ["\\"] = "\\\\", ["\n"] = "\\n" }

local function escaped(c)
  return ESCAPE[c] or ("\\u%04x"):format(c:byte())
end

-- Bytes that are no UTF-8 are taken as Latin-1.
local function quoted(s)
  local text = s:gsub('[%c"\\]', escaped)
  return '"' .. (utf8.len(text) and text or text:gsub("[\x80-\xff]", escaped))
         .. '"'
end

local function number(x)
  if math.type(x) == "integer" then
    return ("%d"):format(x)
  elseif x ~= x then
    return "null"
  elseif x == math.huge or x == -math.huge then
    return x > 0 and "1e999" or "-1e999"
  end
  return ("%.17g"):format(x)
end

local function sorted_names(t)
  local names = {}
  for name in next, t do
    names[#names + 1] = name
  end
  table.sort(names, function (a, b) return tostring(a) < tostring(b) end)
  return names
end

local json

local function list(t)
  local texts = {}
  for i, x in ipairs(t) do
    texts[i] = json(x)
  end
  return "[" .. table.concat(texts, ", ") .. "]"
end

local function object(t)
  local texts = {}
  for i, name in ipairs(sorted_names(t)) do
    texts[i] = quoted(tostring(name)) .. ": " .. json(t[name])
  end
  return "{" .. table.concat(texts, ", ") .. "}"
end

function json(x)
  local kind = type(x)
  if kind == "number" then
    return number(x)
  elseif kind == "string" then
    return quoted(x)
  elseif kind == "table" then
    for name in next, x do
      if math.type(name) ~= "integer" then
        return object(x)
      end
    end
    return list(x)
  elseif flin.is_tensor(x) then
    return json(x:totable())
  elseif kind == "boolean" then
    return tostring(x)
  end
  return x == nil and "null" or quoted(tostring(x))
end

return json
