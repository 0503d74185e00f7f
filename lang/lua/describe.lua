-- v:describe: what a variant takes, gives and keeps, and how it runs.

-- "t k" behind batch entries (B; N of states) and heads: "[B, T, H, K]"; of a
-- layer heads are axes as others.
local function shape(axes, first, is_layer)
  local sizes, timed = {}, axes:find "^t%f[%A]"
  if first or timed then
    sizes[1] = first or "B"
  end
  if timed then
    sizes[2] = "T"
  end
  if not is_layer then
    sizes[#sizes + 1] = "H"
  end
  for axis in axes:gmatch "%S+" do
    if axis ~= "t" then
      sizes[#sizes + 1] = axis:upper()
    end
  end
  return "[" .. table.concat(sizes, ", ") .. "]"
end

local function wants(input)
  if input.domain == "normal" then
    return ""
  end
  return ("%s: %s%s"):format(input.domain, input.wanted,
         input.unit ~= "" and ", " .. input.unit or "")
end

local function add(lines, argument, what)
  lines[#lines + 1] = (("  %-8s %-18s %s"):format(argument.name,
                       argument.shape, what):gsub("%s+$", ""))
end

local meta = {}

function meta.__tostring(d)
  local lines = { d.name }
  if d.about ~= "" then
    lines[#lines + 1] = d.about
  end
  lines[#lines + 1] = "\ntakes"
  for _, input in ipairs(d.inputs) do
    add(lines, input, wants(input))
  end
  lines[#lines + 1] = "gives"
  for _, output in ipairs(d.outputs) do
    add(lines, output, "")
  end
  if #d.states > 0 then
    lines[#lines + 1] = "keeps"
  end
  for _, state in ipairs(d.states) do
    add(lines, state, state.angle and "angle: modulo 2 pi, radians" or "")
  end
  for axis, size in pairs(d.axes) do
    if size then
      lines[#lines + 1] = ("%s is %d"):format(axis:upper(), size)
    end
  end
  lines[#lines + 1] = "\n" .. d.form:gsub("%s+$", "")
  return table.concat(lines, "\n")
end

return function (v)
  local d = { name = v.name, about = v.about, form = v.form, axes = v.axes,
              inputs = v.inputs, states = v.states,
              outputs = v.outputs }
  d.output = d.outputs[1]
  for _, input in ipairs(d.inputs) do
    input.shape = shape(input.axes, nil, v.is_layer)
  end
  for _, state in ipairs(d.states) do
    state.shape = shape(state.axes, "N", v.is_layer)
  end
  for _, output in ipairs(d.outputs) do
    output.shape = shape(output.axes, nil, v.is_layer)
  end
  return setmetatable(d, meta)
end
