-- words.lua -- what the prompt knows of Lua's words: completion, colours, and
-- how values show themselves.
local flin, rows, commands = ...

local words = {}

local KEYWORDS = {}
for word in ([[and break do else elseif end false for function goto if in local
nil not or repeat return then true until while]]):gmatch "%a+" do
  KEYWORDS[word] = true
end

-- ---- completion ----

local function names_of(value)
  local names = {}
  if value == flin.stdlib then
    for _, name in ipairs(flin.stdlib_names) do
      names[name] = true
    end
  elseif type(value) == "table" then
    for name in next, value do
      if type(name) == "string" and name:find "^[%a_][%w_]*$" then
        names[name] = true
      end
    end
  end
  return names
end

-- Methods and fields of the kind of value: of variants, of tensors.
local function members(value, sign)
  local kind = flin.is_tensor(value) and "t" or "v"
  local names = {}
  if type(value) == "string" then
    return sign == ":" and names_of(string) or names
  elseif type(value) ~= "userdata" then
    return names_of(value)
  end
  for _, row in ipairs(rows) do
    local head, s, name = row.name:match "^(%a)([.:])([%w_]+)$"
    if head == kind and (s == sign or sign == ".") then
      names[name] = true
    end
  end
  return names
end

-- The value of a.b.c, without calling anything that a script wrote.
local function value_of(path)
  local value = _G
  for name in path:gmatch "[%w_]+" do
    if value == flin.stdlib then
      local ok, v = pcall(function () return flin.stdlib[name] end)
      value = ok and v or nil
    elseif type(value) == "table" then
      value = rawget(value, name)
    else
      return nil
    end
  end
  return value
end

local function globals()
  local names = names_of(_G)
  for word in pairs(KEYWORDS) do
    names[word] = true
  end
  return names
end

local function sorted(names, prefix, head)
  local list = {}
  for name in pairs(names) do
    if name:sub(1, #prefix) == prefix and (name:sub(1, 1) ~= "_"
                                           or prefix:sub(1, 1) == "_") then
      list[#list + 1] = head .. name
    end
  end
  table.sort(list)
  return list
end

-- Where the word before the end of the text starts, and what could stand
-- there.
function words.complete(text)
  local command = text:match "^:(%a*)$"
  if command then
    local names = {}
    for _, c in ipairs(commands) do
      names[c.name] = true
    end
    return 1, sorted(names, command, ":")
  end
  local help = text:match "^%?([%w_.:]*)$" or text:match "^:help%s+([%w_.:]*)$"
  if help then
    local names = {}
    for _, row in ipairs(rows) do
      names[row.name] = true
      names[row.name:match "[^.:]+$"] = true
    end
    return #text - #help + 1, sorted(names, help, "")
  end
  local path, sign, word = text:match "([%a_][%w_.]*)([.:])([%w_]*)$"
  if path and not text:find "%.%.[%w_]*$" then
    local value = value_of(path)
    if value == nil then
      return 1, {}
    end
    return #text - #word + 1, sorted(members(value, sign), word, "")
  end
  word = text:match "[%a_][%w_]*$"
  if not word then
    return 1, {}
  end
  local names = globals()
  if text:find "^:" then
    for name in pairs(names_of(flin.stdlib)) do
      names[name] = true
    end
  end
  return #text - #word + 1, sorted(names, word, "")
end

-- ---- colours ----

local COLOUR <const> = { keyword = "\27[35m", string = "\27[32m",
                         number = "\27[36m", comment = "\27[90m",
                         built_in = "\27[34m", command = "\27[33m" }
local RESET <const> = "\27[0m"

-- Where a string or a comment that starts at i ends (or the text does).
local function long_end(text, i)
  local level = text:match("^%[(=*)%[", i)
  if level then
    local _, stop = text:find("]" .. level .. "]", i, true)
    return stop or #text
  end
end

local function string_end(text, i)
  local quote = text:sub(i, i)
  local j = i + 1
  while j <= #text do
    local c = text:sub(j, j)
    if c == "\\" then
      j = j + 1
    elseif c == quote or c == "\n" then
      return j
    end
    j = j + 1
  end
  return #text
end

-- The token at i: its end and its colour (or none).
local function token(text, i)
  local c = text:sub(i, i)
  if text:find("^%-%-", i) then
    return long_end(text, i + 2) or (text:find("\n", i, true) or #text + 1) - 1,
           "comment"
  elseif c == '"' or c == "'" then
    return string_end(text, i), "string"
  elseif text:find("^%[=*%[", i) then
    return long_end(text, i), "string"
  end
  local name = text:match("^[%a_][%w_]*", i)
  if name then
    return i + #name - 1, KEYWORDS[name] and "keyword"
           or name == "flin" and "built_in" or nil
  end
  local number = text:match("^0[xX][%x.]+", i)
                 or text:match("^%d+%.?%d*[eE][+-]?%d+", i)
                 or text:match("^%d[%d.]*", i)
  if number then
    return i + #number - 1, "number"
  end
  return i
end

-- The same characters, with colours between them.
function words.highlight(text)
  local parts, i = {}, 1
  local head = text:match "^:%a*" or text:match "^%?"
  if head then
    parts[1] = COLOUR.command .. head .. RESET
    i = #head + 1
  end
  while i <= #text do
    local stop, kind = token(text, i)
    local piece = text:sub(i, stop)
    parts[#parts + 1] = kind and COLOUR[kind] .. piece .. RESET or piece
    i = stop + 1
  end
  return table.concat(parts)
end

-- ---- values ----

local MOST <const> = 12

local table_text

-- inner: a table in it is only said to be one.
local function brief(x, inner)
  if type(x) == "string" then
    return (("%q"):format(#x > 40 and x:sub(1, 37) .. "..." or x)
            :gsub("\\\n", "\\n"))
  elseif type(x) == "table" and not getmetatable(x) then
    local text = next(x) == nil and "{}" or inner and "{...}"
                 or table_text(x, true)
    return text:find "\n" and "{...}" or text
  end
  return (tostring(x):match "^[^\n]*")
end

-- A table's entries, the list first, some of the rest in order.
function table_text(t, inner)
  local parts, keys = {}, {}
  for i = 1, math.min(#t, MOST) do
    parts[i] = brief(t[i], inner)
  end
  local more = #t > MOST
  for k in next, t do
    if not (math.type(k) == "integer" and k >= 1 and k <= #t) then
      keys[#keys + 1] = k
    end
  end
  table.sort(keys, function (a, b)
    a, b = tostring(a), tostring(b)
    local mine, other = a:find "^_", b:find "^_"    -- private ones last
    if mine ~= other then
      return not mine
    end
    return a < b
  end)
  for i, k in ipairs(keys) do
    if i > MOST then
      more = true
      break
    end
    local name = type(k) == "string" and k:find "^[%a_][%w_]*$" and k
                 or "[" .. brief(k, true) .. "]"
    parts[#parts + 1] = name .. " = " .. brief(t[k], inner)
  end
  if more then
    parts[#parts + 1] = "..."
  end
  local line = "{ " .. table.concat(parts, ", ") .. " }"
  if #line <= 78 then
    return #parts == 0 and "{}" or line
  end
  return "{\n  " .. table.concat(parts, ",\n  ") .. "\n}"
end

-- What the prompt prints of a result.
function words.show(x)
  if type(x) == "string" and x:find "^<svg " then
    return ("a drawing of %d characters; :save x.svg keeps it, :show shows it")
           :format(#x)
  end
  if type(x) == "table" and not getmetatable(x) and x ~= _G then
    return table_text(x)
  end
  return tostring(x)
end

return words
