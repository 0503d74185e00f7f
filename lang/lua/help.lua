-- flin.help and flin.luacats: the table of built-ins as text.
local flin, own = ...
local rows = own.load "lang/lua/builtins" ()

local help = {}

function help.rows()
  return rows
end

-- "a: value, b?: string -> value": lists of { name, type, optional }.
local function parse(signature)
  local arrow = signature:find("->", 1, true)
  local left = signature:sub(1, (arrow or 0) - 1)
  local right = arrow and signature:sub(arrow + 2)
  local params, results = {}, {}
  for p in left:gmatch "[^,]+" do
    local name, mark, kind = p:match "([%w_]+)(%??): *([^ ]+)"
    params[#params + 1] = name and { name, kind, mark == "?" } or { "..." }
  end
  for r in (right or ""):gmatch "[^,%s]+" do
    results[#results + 1] = r
  end
  return params, results
end

local function is_field(row)
  return row.signature and not row.signature:find "[:>]"
end

-- "dot(a, b [, axes]) -> value"
local function call_text(row)
  if row.usage then
    return row.name .. " " .. row.usage
  end
  if is_field(row) then
    return row.name .. " : " .. row.signature
  end
  local params, results = parse(row.signature)
  local text, closing = "", ""
  for i, p in ipairs(params) do
    local comma = i > 1 and ", " or ""
    if p[3] then
      text, closing = text .. (i > 1 and " [" or "[") .. comma .. p[1],
                      closing .. "]"
    else
      text = text .. comma .. p[1]
    end
  end
  text = ("%s(%s%s)"):format(row.name, text, closing)
  return #results > 0 and text .. " -> " .. table.concat(results, ", ") or text
end

local function indented(text)
  return "  " .. text:gsub("\n", "\n  ")
end

local function entry(row)
  local text = call_text(row) .. "\n  " .. row.brief .. "\n"
  return row.more and text .. indented(row.more) .. "\n" or text
end

-- The rows that a name means: in full, or what stands behind "flin." or ":".
local function find(name)
  local found = {}
  for _, row in ipairs(rows) do
    local short = row.name:match "[^.:]+$"
    if row.name == name or row.name == "flin." .. name then
      return { row }
    elseif short == name then
      found[#found + 1] = row
    end
  end
  return found
end

local function holding(name)
  local lines = {}
  for _, row in ipairs(rows) do
    if row.name:find(name, 1, true) or row.brief:find(name, 1, true) then
      lines[#lines + 1] = ("  %-28s %s"):format(row.name, row.brief)
    end
  end
  return lines
end

-- "did you mean 'dot'?", where one of the names is like it.
local function like(name, names)
  return own.suggest(name, "", names):match "^did you mean '[^']+'%?"
end

-- ": did you mean 'dot'? ", or what stands in its place.
local function near(name)
  local names = {}
  for _, row in ipairs(rows) do
    names[#names + 1] = row.name
    names[#names + 1] = row.name:match "[^.:]+$"
  end
  local found = like(name, table.move(flin.stdlib_names, 1,
                                      #flin.stdlib_names, #names + 1, names))
  return found and ": " .. found .. " " or "; "
end

-- Help where Lua's own message names what is nil, or nothing.
function help.meant(message)
  local kind, name = message:match "a nil value %((%a+) '([%w_]+)'%)"
  local names, known = {}, {}
  if not name then
    kind, name = "method", message:match "no field or method '([%w_]+)'"
  end
  for _, row in ipairs(rows) do
    local of, last = row.name:match "^(.-[.:])([^.:]+)$"
    if of and (of:find "^flin") == (kind ~= "method" and 1 or nil) then
      names[#names + 1], known[last] = last, row.name
    end
  end
  if kind == "global" then
    for global in pairs(_G) do
      names[#names + 1] = global
    end
    names[#names + 1] = "flin"
    return known[name] and ("local %s = %s"):format(name, known[name])
           or like(name, names)
  end
  return (kind == "method" or kind == "field") and not known[name]
         and like(name, names) or nil
end

local function overview()
  local lines = {}
  for _, row in ipairs(rows) do
    lines[#lines + 1] = ("%-30s %s"):format(row.name, row.brief)
  end
  return table.concat(lines, "\n") .. "\n"
end

function help.of(name)
  if name == nil then
    return overview()
  elseif type(name) ~= "string" then
    error("flin.help: a name is wanted, not a " .. type(name)
          .. "\n  help: flin.help \"dot\"", 2)
  end
  local texts = {}
  for i, row in ipairs(find(name)) do
    texts[i] = entry(row)
  end
  local variants = "," .. table.concat(flin.stdlib_names, ",") .. ","
  local variant = name:match "^flin%.stdlib%.(.+)" or name
  if #texts == 0 and variants:find("," .. variant .. ",", 1, true) then
    return ("flin.stdlib.%s\n%s"):format(variant,
                                         tostring(flin.stdlib[variant]))
  elseif #texts == 0 then
    local lines = holding(name)
    if #lines == 0 then
      return ("nothing is called '%s'%sflin.help() lists all there is\n")
             :format(name, near(name))
    end
    return ("nothing is called '%s'; it stands in\n%s\n")
           :format(name, table.concat(lines, "\n"))
  end
  return table.concat(texts, "\n")
end

-- ---- LuaCATS ----

local CLASS = { v = "flin.Variant", t = "flin.Tensor", g = "flin.Game",
                flin = "flin" }
local TYPE = { value = "flin.Value", tensor = "flin.Tensor",
               variant = "flin.Variant", game = "flin.Game" }

local function type_text(kind)
  return (kind:gsub("%a+", TYPE))
end

local function comment(out, row)
  out[#out + 1] = "---" .. row.brief
  for line in ((row.more or "") .. "\n"):gmatch "(.-)\n" do
    if row.more then
      out[#out + 1] = "---" .. line
    end
  end
end

-- ---@param and ---@return lines, and the function itself.
local function define(out, row, path)
  local params, results = parse(row.signature)
  local names = {}
  for i, p in ipairs(params) do
    names[i] = p[1]
    out[#out + 1] = p[2] and ("---@param %s%s %s"):format(p[1],
                    p[3] and "?" or "", type_text(p[2])) or "---@param ... any"
  end
  for _, r in ipairs(results) do
    out[#out + 1] = "---@return " .. type_text(r)
  end
  out[#out + 1] = ("function %s(%s) end\n"):format(path,
                                                  table.concat(names, ", "))
end

local HEAD = [[
---@meta flin
-- Definitions of flin for editors that read LuaCATS (lua-language-server).

---@class flin.Value
---@operator add(any): flin.Value
---@operator sub(any): flin.Value
---@operator mul(any): flin.Value
---@operator div(any): flin.Value
---@operator pow(any): flin.Value
---@operator unm: flin.Value
]]

local function fields_of(prefix, out)
  for _, row in ipairs(rows) do
    local head, name = row.name:match "^(%a+)%.([%w_]+)$"
    if head == prefix and is_field(row) then
      out[#out + 1] = ("---@field %s %s %s"):format(name,
                      type_text(row.signature), row.brief)
    end
  end
end

function help.luacats()
  local out = { HEAD }
  for _, c in ipairs { { "t", "Tensor" }, { "v", "Variant" },
                       { "g", "Game" } } do
    out[#out + 1] = "---@class flin." .. c[2]
    fields_of(c[1], out)
    out[#out + 1] = ("local %s = {}\n"):format(c[2])
  end
  out[#out + 1] = "---@class flin"
  fields_of("flin", out)
  out[#out + 1] = "local flin = {}\n"
  local made = {}
  for _, row in ipairs(rows) do
    local head, dot, name = row.name:match "^([%w_.]+)([.:])([%w_]+)$"
    local inner = head and head:match "^flin%.([%w_.]+)$"
    local class = ({ v = "Variant", t = "Tensor", g = "Game" })[head] or head
    if inner and not made[inner] then
      made[inner] = true
      out[#out + 1] = head .. " = {}\n"
    end
    if class and row.signature and not is_field(row) then
      comment(out, row)
      define(out, row, class .. dot .. name)
    end
  end
  out[#out + 1] = "return flin"
  return table.concat(out, "\n") .. "\n"
end

return help
