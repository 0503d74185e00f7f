-- v:dag: the step's graph as assignments. A node that several others use has
-- a line and a letter of its own; the others stand inside the expressions.
local flin, own = ...

local INFIX <const> = { add = " + ", sub = " - ", mul = "*", div = "/" }
local LEVEL <const> = { add = 1, sub = 1, mul = 2, div = 2 }
local WIDE <const> = 56                 -- longer expressions are cut in two

-- v:dump's text: nodes by number, inputs and states by name, roots in order.
local function read(text)
  local nodes, roots = {}, {}
  for line in text:gmatch "[^\n]+" do
    local id, text = line:match "^%%(%d+) = (.*)$"
    local op, rest = (text or ""):match "^(%S+)%s*(.*)$"
    local state, next_ = line:match "^next (%S+) %%(%d+)"
    local out, node = line:match "^out (%S+) .-%%(%d+)"
    if id then
      local args = {}
      local plain = rest:gsub("%s*[@#].*$", "")
      for a in plain:gmatch "%%(%d+)" do
        args[#args + 1] = a
      end
      nodes[id] = { op = op, args = args, rest = plain, uses = 0,
                    line = rest:match "@(%d+)",
                    axes = rest:match "#%s*(.-)%s*$" }
    elseif state then
      roots[#roots + 1] = { "next " .. state, next_ }
    elseif out then
      roots[#roots + 1] = { out, node }
    end
  end
  for _, n in pairs(nodes) do
    for _, a in ipairs(n.args) do
      nodes[a].uses = nodes[a].uses + 1
    end
  end
  for _, root in ipairs(roots) do
    nodes[root[2]].uses = nodes[root[2]].uses + 1
  end
  return nodes, roots
end

-- The assignments: { name, text, axes, line, out = a root? }.
local function assignments(v)
  local nodes, roots = read(v:dump "T")
  local lines, count, line = {}, 0, nil

  local function emit(name, text, n, out)
    lines[#lines + 1] = { name = name, text = text, axes = n.axes or "",
                          line = n.line, out = out }
  end

  local function expression(id)
    local n = nodes[id]
    if n.op == "input" or n.op == "state" then
      return n.rest, 3
    elseif n.op == "num" then
      return ("%.6g"):format(tonumber(n.rest)),
             n.rest:sub(1, 1) == "-" and 1 or 3
    end
    local texts, level = {}, LEVEL[n.op]
    for i, a in ipairs(n.args) do
      local text, inner = line(a)
      if (level and (inner < level or (i == 2 and inner == level
          and n.op ~= "add" and n.op ~= "mul")))
         or (n.op == "neg" and inner < 2) then
        text = "(" .. text .. ")"
      end
      texts[i] = text
    end
    if INFIX[n.op] then
      return texts[1] .. INFIX[n.op] .. texts[2], level
    elseif n.op == "neg" then
      return "-" .. texts[1], 1
    end
    local extra = n.rest:gsub("%%%d+", ""):match "^%s*(.-)%s*$"
    texts[#texts + 1] = extra ~= "" and extra or nil
    return ("%s(%s)"):format(n.op, table.concat(texts, ", ")), 3
  end

  -- The text by which others name the node, and how strongly it binds.
  function line(id)
    local n = nodes[id]
    if n.name then
      return n.name, 3
    end
    local text, level = expression(id)
    local leaf = #n.args == 0
    if leaf or (n.uses < 2 and #text <= WIDE) then
      return text, level
    end
    count = count + 1
    n.name = "u" .. count
    emit(n.name, text, n)
    return n.name, 3
  end

  for _, root in ipairs(roots) do
    local n = nodes[root[2]]
    if n.uses > 1 or n.name then
      line(root[2])
    end
    emit(root[1], n.name or (expression(root[2])), n, true)
  end
  return lines
end

return function (v, options)
  if options ~= nil and type(options) ~= "table" then
    error("dag: a table of options is wanted, not a " .. type(options), 2)
  end
  local drawing, format = {}, "text"
  for name, x in next, options or {} do
    if name == "format" then
      format = x
    else
      drawing[name] = x
    end
  end
  if format ~= "text" then
    if format ~= "svg" and format ~= "dot" then
      error(("dag: there is no format '%s'\n  help: formats: text, svg, dot")
            :format(tostring(format)), 2)
    end
    return own.load "lang/lua/draw_dag" (flin, own) (v.name, assignments(v),
                                                     drawing, format)
  elseif next(drawing) ~= nil then
    error(("dag: there is no option '%s'\n  help: format = \"svg\" or \"dot\"")
          :format(tostring((next(drawing)))), 2)
  end
  local lines = { v.name .. ": one token" }
  for _, l in ipairs(assignments(v)) do
    lines[#lines + 1] = ("  %-11s = %-" .. WIDE .. "s [%s]%s"):format(l.name,
      l.text, l.axes, l.line and "  line " .. l.line or "")
  end
  return table.concat(lines, "\n")
end
