-- equation.lua -- a variant's step as MathML, from its trace.
--
-- Vectors are columns and the axes' order is that of rows and columns: outer(k,
-- v) is k v^T, dot(q, S) is S^T q, a factor along the rows' axis is a diagonal
-- matrix from the left.
local equation = {}

local GREEK = { alpha = "α", beta = "β", gamma = "γ", delta = "δ",
                eta = "η", theta = "θ", kappa = "κ", lambda = "λ",
                mu = "μ", sigma = "σ", phi = "φ", tau = "τ", Delta = "Δ" }
local NAMES = { sigmoid = "σ", softplus = "softplus", tanh = "tanh",
                log = "log", sin = "sin", cos = "cos", silu = "SiLU",
                relu = "ReLU", max = "max", min = "min", floor = "floor",
                sign = "sign", where = "where", lt = "lt", le = "le",
                eq = "eq", gt = "gt", ge = "ge" }
-- How strongly what is written binds.
local SUM <const>, ENTRIES <const>, PRODUCT <const>, ATOM <const> = 1, 2, 3, 4

-- ---- MathML ----

local function mi(text)
  return ("<mi>%s</mi>"):format(text)
end

local function mo(text)
  return ("<mo>%s</mo>"):format(text)
end

local function row(...)
  return "<mrow>" .. table.concat { ... } .. "</mrow>"
end

local function fenced(text, left, right)
  return row(mo(left or "("), text, mo(right or ")"))
end

local function sup(base, text)
  return ("<msup>%s%s</msup>"):format(base, text)
end

local TRANSPOSED <const> = '<mo stretchy="false">⊤</mo>'

-- What begins with a <msub> is a name and what stands below it.
local function transposed(text)
  local parts = text:match "^<msub>(.*)</msub>$"
  if parts then
    return ("<msubsup>%s%s</msubsup>"):format(parts, TRANSPOSED)
  end
  return sup(text, TRANSPOSED)
end

-- A name, "A_log" with its second part below, and what stands below it.
local function symbol(name, below)
  local head, tail = name:match "^([%a]+)_(.+)$"
  local base = mi(GREEK[head or name] or head or name)
  local parts = {}
  parts[#parts + 1] = tail and ("<mtext>%s</mtext>"):format(tail) or nil
  parts[#parts + 1] = below or nil
  if #parts == 0 then
    return base
  end
  return ("<msub>%s%s</msub>"):format(base,
                                      row(table.concat(parts, mo ",")))
end

local NOW <const> = mi "t"
local BEFORE <const> = row(mi "t", mo "−", "<mn>1</mn>")

-- ---- the trace ----

-- v:dump "T" as nodes by number: op, args, rest, axes, uses; and its roots.
local function read(text)
  local nodes, roots, timed = {}, {}, {}
  for line in text:gmatch "[^\n]+" do
    local id, rest = line:match "^%%(%d+) = (.*)$"
    local state, next_ = line:match "^next (%S+) %%(%d+)"
    local out, node = line:match "^out (%S+) .-%%(%d+)"
    local input, axes = line:match "^input (%S+) ?([^:@]*)"
    if id then
      local op, more = rest:match "^(%S+)%s*(.*)$"
      local plain, args = more:gsub("%s*[@#].*$", ""), {}
      for a in plain:gmatch "%%(%d+)" do
        args[#args + 1] = a
      end
      local n = { op = op, args = args, rest = plain, uses = 0, axes = {} }
      for axis in (rest:match "#%s*(.-)%s*$" or ""):gmatch "%S+" do
        n.axes[#n.axes + 1] = axis
      end
      nodes[id] = n
    elseif state then
      roots[#roots + 1] = { state = state, id = next_ }
    elseif out then
      roots[#roots + 1] = { out = out, id = node }
    elseif input then
      timed[input] = (" " .. axes .. " "):find(" t ", 1, true) ~= nil
    end
  end
  for _, n in pairs(nodes) do
    for _, a in ipairs(n.args) do
      nodes[a].uses = nodes[a].uses + 1
    end
  end
  return nodes, roots, timed
end

local function index_of(list, x)
  for i, y in ipairs(list) do
    if x == y then
      return i
    end
  end
end

local function number(text)
  local x = tonumber(text)
  if x == math.pi then
    return mi "π"
  elseif x < 0 then
    return row(mo "−", ("<mn>%.6g</mn>"):format(-x)), PRODUCT
  end
  local digits, power = ("%.6g"):format(x):match "^(.-)e([+-]%d+)$"
  if not digits then
    return ("<mn>%.6g</mn>"):format(x)
  end
  power = ("%d"):format(tonumber(power)):gsub("-", "−")
  local ten = sup("<mn>10</mn>", ("<mn>%s</mn>"):format(power))
  if digits == "1" then
    return ten
  end
  return row(("<mn>%s</mn>"):format(digits), mo "·", ten), PRODUCT
end

-- Lines of MathML for a variant: those of what is used more than once, the
-- states' and y's.
function equation.of(v)
  local nodes, roots, timed = read(v:dump "T")
  local lines, letters, show = {}, 0, nil

  local function inner(id, least)
    local text, level = show(id)
    return level < least and fenced(text) or text
  end

  local function scalar(id)
    return #nodes[id].axes == 0
  end

  local function times(left, right)
    return row(inner(left, PRODUCT), '<mspace width="0.12em" />',
               inner(right, PRODUCT)), PRODUCT
  end

  -- The axes that a matrix product leaves, rows' first, must be the node's.
  local function check_axes(n, over, ...)
    local left = {}
    for _, axes in ipairs { ... } do
      for _, axis in ipairs(axes) do
        left[#left + 1] = axis ~= over and axis or nil
      end
    end
    local got, want = table.concat(left, " "), table.concat(n.axes, " ")
    if got ~= want then
      error(("equation of %s: a product [%s] for [%s]"):format(v.name, got,
                                                               want), 0)
    end
  end

  -- a b^T, diag(a) B, or element by element.
  local function product(n)
    local a, b = n.args[1], n.args[2]
    if scalar(a) or scalar(b) then
      if scalar(b) and (not scalar(a) or nodes[b].op == "num") then
        a, b = b, a
      end
      return times(a, b)
    end
    local x, y = nodes[a].axes, nodes[b].axes
    if #n.axes == #x + #y and #x + #y > 2 then
      return row(inner(a, ATOM), mo "⊗", inner(b, ATOM)), ENTRIES
    elseif #x == 1 and #y == 1 and x[1] ~= y[1] then
      if n.axes[1] ~= x[1] then
        a, b = b, a
      end
      check_axes(n, nil, nodes[a].axes, nodes[b].axes)
      return row(inner(a, PRODUCT), transposed(inner(b, ATOM))), PRODUCT
    elseif #x + #y == 3 then
      local d, m = a, b
      if #x == 2 then
        d, m = b, a
      end
      local diagonal = row(mi "diag", fenced((show(d))))
      if nodes[d].axes[1] == nodes[m].axes[1] then
        return row(diagonal, inner(m, PRODUCT)), PRODUCT
      elseif nodes[d].axes[1] == nodes[m].axes[2] then
        return row(inner(m, PRODUCT), diagonal), PRODUCT
      end
    end
    return row(inner(a, ENTRIES), mo "⊙", inner(b, ENTRIES)), ENTRIES
  end

  -- A matrix product where there is one, else a sum over the axes by name.
  local function contraction(n)
    local a, b = n.args[1], n.args[2]
    local over, more = n.rest:match "over (%S+)%s*(%S*)"
    local x, y = nodes[a].axes, nodes[b].axes
    if more == "" and #x == 1 and #y == 1 then
      return row(transposed(inner(a, ATOM)), inner(b, PRODUCT)), PRODUCT
    elseif more == "" and #x <= 2 and #y <= 2
           and #n.axes == #x + #y - 2 then
      local rest = #x == 2 and x[3 - index_of(x, over)] or y[3 - index_of(y,
                                                                    over)]
      if #x == 1 or (#y == 2 and n.axes[1] ~= rest) then
        a, b, x, y = b, a, y, x
      end
      check_axes(n, over, x, y)
      local left = index_of(x, over) == 1 and transposed(inner(a, ATOM))
                   or inner(a, PRODUCT)
      local right = #y == 2 and index_of(y, over) == 2
                    and transposed(inner(b, ATOM)) or inner(b, PRODUCT)
      return row(left, right), PRODUCT
    end
    return row(("<msub>%s%s</msub>"):format(mo "∑", mi(n.rest:match
               "over (.-)%s*$")), inner(a, PRODUCT), mo "⊙",
               inner(b, PRODUCT)), ENTRIES
  end

  -- x cos(phi) + rot90(x) sin(phi): x turned by phi.
  local function turned(n)
    local function factor(id, op)
      local m = nodes[id]
      if m.op ~= "mul" then
        return
      end
      for i = 1, 2 do
        local f = nodes[m.args[i]]
        if f.op == op then
          return f.args[1], m.args[3 - i]
        end
      end
    end
    for i = 1, 2 do
      local angle, u = factor(n.args[i], "sin")
      local also, x = factor(n.args[3 - i], "cos")
      if angle and angle == also and nodes[u].op == "rot90"
         and nodes[u].args[1] == x then
        local phi = nodes[angle].op == "dup" and nodes[angle].args[1] or angle
        return row(mi "R", fenced((show(phi))), inner(x, ATOM)), PRODUCT
      end
    end
  end

  local function below(base, text)
    return ("<msub>%s%s</msub>"):format(base, text)
  end

  local OPS = {}

  function OPS.add(n)
    local text, level = turned(n)
    if text then
      return text, level
    end
    return row(inner(n.args[1], SUM), mo "+", inner(n.args[2], SUM)), SUM
  end

  function OPS.sub(n)
    return row(inner(n.args[1], SUM), mo "−", inner(n.args[2], PRODUCT)), SUM
  end

  OPS.mul, OPS.dot = product, contraction

  function OPS.neg(n)
    return row(mo "−", inner(n.args[1], PRODUCT)), SUM
  end

  function OPS.div(n)
    return ("<mfrac>%s%s</mfrac>"):format((show(n.args[1])),
                                          (show(n.args[2]))), ATOM
  end

  function OPS.exp(n)
    return sup(mi "e", row((show(n.args[1])))), ATOM
  end

  function OPS.square(n)
    return sup(inner(n.args[1], ATOM), "<mn>2</mn>"), ATOM
  end

  function OPS.sqrt(n)
    return "<msqrt>" .. show(n.args[1]) .. "</msqrt>", ATOM
  end

  function OPS.rsqrt(n)
    return ("<mfrac><mn>1</mn><msqrt>%s</msqrt></mfrac>")
           :format((show(n.args[1]))), ATOM
  end

  function OPS.abs(n)
    return fenced((show(n.args[1])), "|", "|"), ATOM
  end

  function OPS.wrap(n)
    return row(inner(n.args[1], SUM), '<mspace width="0.4em" />',
               "<mtext>mod</mtext>", '<mspace width="0.3em" />',
               "<mn>2</mn>", mi "π"), SUM
  end

  function OPS.select(n)
    local from, at = nodes[n.args[1]], n.rest:match "index (%d+)"
    local entry = ("<mn>%d</mn>"):format(at + 1)
    if from.op == "input" and timed[from.rest] then
      return symbol(from.rest, row(NOW, mo ",", entry)), ATOM
    end
    return below(inner(n.args[1], ATOM), entry), ATOM
  end

  function OPS.num(n)
    local text, level = number(n.rest)
    return text, level or ATOM
  end

  function OPS.input(n)
    return symbol(n.rest, timed[n.rest] and NOW), ATOM
  end

  function OPS.state(n)
    return symbol(n.rest:match "^prev_(.+)$" or n.rest, BEFORE), ATOM
  end

  function OPS.size(n)
    return row(mi "size", fenced(mi(n.rest))), ATOM
  end

  function OPS.dup(n)
    return show(n.args[1])
  end

  local function call(n)
    local texts = {}
    for i, a in ipairs(n.args) do
      texts[i] = show(a)
    end
    local over = n.rest:match "over (.-)%s*$"
    local name = mi(NAMES[n.op] or n.op)
    return row(over and below(name, mi(over)) or name,
               fenced(table.concat(texts, mo ","))), ATOM
  end

  local function expression(id)
    local n = nodes[id]
    return (OPS[n.op] or call)(n)
  end

  local function emit(name, id)
    local text = expression(id)         -- may emit others before it
    lines[#lines + 1] = ('<math display="block">%s</math>')
                        :format(row(name, mo "=", text))
    nodes[id].name = name
  end

  -- What is worth a line of its own: used twice, and not next to a leaf.
  local function is_large(n)
    local inner_one = #n.args == 1 and nodes[n.args[1]]
    return #n.args > 0 and not (inner_one and #inner_one.args == 0)
           and n.op ~= "dup" and n.op ~= "rot90"
  end

  -- In a rotation, the angle is read by a sine and a cosine of one dup.
  function show(id)
    local n = nodes[id]
    if not n.name and n.root then
      emit(n.root, id)
    elseif not n.name and n.uses > 1 and is_large(n) then
      letters = letters + 1
      emit(below(mi "u", ("<mn>%d</mn>"):format(letters)), id)
    end
    if n.name then
      return n.name, ATOM
    end
    return expression(id)
  end

  local list = {}
  for _, r in ipairs(roots) do
    local n = nodes[r.id]
    if r.out or #n.args > 0 and not (r.state or ""):find "^prev" then
      local name = symbol(r.state or "y", NOW)
      if n.op == "wrap" then      -- the sum stands under the state's name
        n = nodes[n.args[1]]
      end
      n.root = n.root or name
      list[#list + 1] = r
    end
  end
  for _, r in ipairs(list) do
    local n = nodes[r.id]
    if not (n.op == "wrap" and nodes[n.args[1]].name) and not n.name then
      show(n.op == "wrap" and n.args[1] or r.id)
    end
  end
  return '<div class="equation">\n' .. table.concat(lines, "\n") .. "\n</div>\n"
end

return equation
