-- variants.lua -- a page for each variant of the standard library: what its
-- file says, its equations, its mask, its plan, and what was measured.
local flin = require "flin"
local snippets = require "snippets"
local equation = require "equation"
local reference = require "reference"

local variants = {}

-- ---- what the file says ----

local function source(name)
  return snippets.read(("stdlib/%s.lua"):format(name))
end

-- The comment at its head, in one line.
local function said(name)
  local lines = {}
  for _, line in ipairs(snippets.lines(source(name))) do
    local text = line:match "^%-%- ?(.*)$"
    if not text then
      break
    end
    lines[#lines + 1] = text
  end
  return table.concat(lines, " ")
end

local function with_links(text)
  return (text:gsub("arXiv:(%d+%.%d+)", "[arXiv:%1](https://arxiv.org/abs/%1)"))
end

local MEANS = {}
for _, d in ipairs(reference.domains()) do
  MEANS[d.name] = d.row and "rows " .. d.wanted or d.wanted
end

-- Pairs are of slots, where there are such, or of keys.
local function shape_of(v, axes, lead)
  local sizes, timed = { "H" }, false
  local pairs_of = v.axes.m ~= nil and "M/2" or "K/2"
  for axis in axes:gmatch "%S+" do
    if axis == "t" then
      timed = true
    else
      sizes[#sizes + 1] = axis == "p" and pairs_of or axis:upper()
    end
  end
  if timed then
    table.insert(sizes, 1, "T")
    table.insert(sizes, 1, "B")
  elseif lead then
    table.insert(sizes, 1, "N")
  end
  return "[" .. table.concat(sizes, ", ") .. "]"
end

local function arguments(v)
  local out = { "| | axes | shape | values |\n|---|---|---|---|" }
  for _, a in ipairs(v.inputs) do
    local constant = not (" " .. a.axes .. " "):find(" t ", 1, true)
    out[#out + 1] = ("| `%s` | `%s` | %s | %s%s |"):format(a.name,
      a.axes == "" and " " or a.axes, shape_of(v, a.axes), MEANS[a.domain],
      constant and "; a constant of the head" or "")
  end
  for _, s in ipairs(v.states) do
    local before = s.name:match "^prev_(.+)$"
    out[#out + 1] = ("| state `%s` | `%s` | %s | %s |"):format(s.name,
      s.axes == "" and " " or s.axes, shape_of(v, s.axes, true),
      s.angle and "kept modulo 2 pi" or before and
      ("`%s` of the token before"):format(before) or "")
  end
  out[#out + 1] = ("| y | `%s` | %s | |"):format(v.output,
                                                 shape_of(v, v.output))
  return table.concat(out, "\n")
end

-- ---- calls ----

local DRAW = {
  normal = "rng.standard_normal(%s, np.float32)",
  log_decay = "-rng.random(%s, np.float32)",
  unit = "rng.random(%s, np.float32)",
  unit_norm = "unit(rng.standard_normal(%s, np.float32))",
  positive = "rng.random(%s, np.float32) + 0.1",
  angle = "rng.standard_normal(%s, np.float32)",
}

-- "(B, T, H, K)", and the sizes noted.
local function drawn(v, a, sizes)
  local shape = shape_of(v, a.axes):sub(2, -2)
  for size in shape:gmatch "%u%w*" do
    if not sizes[size] then
      sizes[size] = true
      sizes[#sizes + 1] = size
    end
  end
  shape = shape:gsub("/", " // ")
  return DRAW[a.domain]:format("(" .. shape .. (shape:find "," and "" or ",")
                               .. ")")
end

local SIZE <const> = { B = 1, T = 64, H = 2, K = 16, V = 16, M = 8,
                      R = 8 }

-- "B, T, H, K = 1, 64, 2, 16".
local function size_line(v, sizes)
  local values = {}
  for i, size in ipairs(sizes) do
    values[i] = tostring(v.axes[size:lower()] or SIZE[size])
  end
  return table.concat(sizes, ", ") .. " = " .. table.concat(values, ", ")
end

-- A call over lines of 76 columns.
local function call_of(name, given)
  local lines, start = {}, ("o, state = %s("):format(name)
  local line, gap = start, (" "):rep(#start)
  for _, g in ipairs(given) do
    if #line + #g > 74 then
      lines[#lines + 1], line = line:gsub(" $", ""), gap
    end
    line = line .. g .. ", "
  end
  if #line > 50 then
    lines[#lines + 1], line = line:gsub(" $", ""), gap
  end
  lines[#lines + 1] = line .. "output_final_state=True)"
  return table.concat(lines, "\n")
end

local UNIT <const> = [[

def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)

]]
local POSITION <const> = { q = 1, k = 2, v = 3 }

-- Inputs as variables; in a dict where their names are taken.
local function in_python(v, name)
  local sizes, lines, given = { B = true, T = true, H = true, V = true,
                                "B", "T", "H", "V" }, {}, {}
  local clash = false
  for i, a in ipairs(v.inputs) do
    clash = clash or a.name == "lambda" or SIZE[a.name]
    lines[i] = drawn(v, a, sizes)
  end
  table.sort(sizes, function (a, b)
    local order = "BTHKMRPNV"
    return order:find(a) < order:find(b)
  end)
  for i, a in ipairs(v.inputs) do
    lines[i] = clash and ('    "%s": %s,'):format(a.name, lines[i])
               or ("%s = %s"):format(a.name, lines[i])
    local at = POSITION[a.name]
    given[i] = { at = at or 3 + i, text = at and a.name
                                          or a.name .. "=" .. a.name }
  end
  table.sort(given, function (a, b) return a.at < b.at end)
  for i, g in ipairs(given) do
    given[i] = g.text
  end
  local text = table.concat(lines, "\n")
  return ([[
```python
import flin
import numpy as np
%s
rng = np.random.default_rng(0)
%s
%s

%s = flin.load("%s")
%s
assert o.shape == (B, T, H, V)
```
]]):format(text:find "unit%(" and UNIT or "", size_line(v, sizes),
           clash and "x = {\n" .. text .. "\n}" or text, name, name,
           call_of(name, clash and { "**x" } or given))
end

local function calls(v, name)
  return ([[
In Lua, against the float64 step, with gradients:

```lua
local flin = require "flin"
local v = flin.stdlib.%s
local y, state = v:forward(v:random { T = 100, H = 2, K = 16, V = 16 })
local errors = v:check { T = 100, H = 2, K = 16, V = 16 }
assert(errors.worst < 1e-4)
```

In Python, with NumPy arrays or PyTorch tensors:

%s]]):format(name, in_python(v, name))
end

-- ---- pictures and plans ----

local function figure(file, caption)
  return ('<figure><img src="%s" alt="%s" />\n<figcaption>%s</figcaption>'
          .. "</figure>"):format(file, caption, caption)
end

local function mask(v, name, out)
  local ok, picture = pcall(v.mask, v, { T = 32, format = "svg" })
  if not ok or type(picture) ~= "string" then
    return nil
  end
  local file = ("mask-%s.svg"):format(name)
  snippets.write(out .. "/" .. file, picture)
  return figure(file, ("Weight of token j in the result of token i, with "
    .. "random gates and equal keys (v:mask, T = 32)"))
end

local function plan(v, name, out)
  local options = { K = 128, V = 128, backward = true, machine = "h200" }
  local p = v:plan(options)
  local rows = { "| kernel | reads | writes | flops |\n|---|--:|--:|--:|" }
  for _, k in ipairs(p.kernels) do
    rows[#rows + 1] = ("| %s | %.0f | %.0f | %.0f |"):format(k.name, k.reads,
                      k.bytes - k.reads, k.flops)
  end
  local file = ("plan-%s.svg"):format(name)
  options.format = "svg"
  snippets.write(out .. "/" .. file, v:plan(options))
  return ([[
Forward and backward on an H200, K = V = 128, in chunks of %d: %d kernels
move %.0f bytes a token and head; a kernel for each product would move %.0f.

%s

Bytes and operations are of one token of one head.

%s

`flin plan` prints it for any sizes; [how it works](how.md) says how it is
found.]]):format(p.chunk, #p.kernels, p.bytes, p.unfused_bytes,
                 table.concat(rows, "\n"),
                 figure(file, "The plan: kernels, what each computes, and what "
                              .. "is stored between them"))
end

-- ---- what was measured ----

-- README's tables: { head cells, rows by the first cell, caption }.
local function tables()
  local found, now = {}, nil
  for _, line in ipairs(snippets.lines(snippets.read "README.md")) do
    local cells = {}
    for cell in line:gsub("\\|", "\0"):gmatch "|([^|]*)" do
      cells[#cells + 1] = cell:gsub("%z", "|"):match "^%s*(.-)%s*$"
    end
    cells[#cells] = cells[#cells] ~= "" and cells[#cells] or nil
    if #cells > 1 and cells[1]:find "^ms: flin" then
      now = { head = cells, rows = {} }
      found[#found + 1] = now
    elseif #cells > 1 and now then
      now.rows[#now.rows + 1] = cells
      now.rows[cells[1]] = cells
    elseif #cells == 0 then
      now = nil
    end
  end
  return found
end

local function speed(name)
  local out = {}
  for i, t in ipairs(tables()) do
    local row = t.rows[name]
    if row then
      out[#out + 1] = i == 1 and "Forward, milliseconds:\n"
                      or "\nForward and backward, milliseconds:\n"
      out[#out + 1] = "| shape | flin | peer |\n|---|--:|--:|"
      for c = 2, #t.head do
        local ours, theirs = row[c]:match "^(%S+) | (%S+)$"
        out[#out + 1] = ("| %s | %s | %s |"):format(t.head[c], ours, theirs)
      end
    end
  end
  if #out == 0 then
    return "It has not been measured beside a peer."
  end
  out[#out + 1] = "\nOne H200, bfloat16, K = V = 128; the peer is "
    .. "flash-linear-attention's or Mamba's kernel. [How it was "
    .. "measured](speed.md)."
  return table.concat(out, "\n")
end

-- README's tables, with links.
function variants.speed_table(which)
  local t, is_variant = tables()[tonumber(which)], {}
  for _, name in ipairs(flin.stdlib_names) do
    is_variant[name] = true
  end
  local out = {}
  for i, row in ipairs { t.head, table.unpack(t.rows) } do
    local cells = {}
    for c, cell in ipairs(row) do
      cells[c] = cell:gsub("|", "\\|")
    end
    out[#out + 1] = "| " .. table.concat(cells, " | ") .. " |"
    if i == 1 then
      break
    end
  end
  out[#out + 1] = "|---" .. ("|--:"):rep(#t.head - 1) .. "|"
  for i = 2, #t.rows do       -- the first is the line under the head
    local cells = {}
    for c, cell in ipairs(t.rows[i]) do
      cells[c] = c == 1 and is_variant[cell]
                 and ("[%s](variant-%s.md)"):format(cell, cell)
                 or cell:gsub("|", "\\|")
    end
    out[#out + 1] = "| " .. table.concat(cells, " | ") .. " |"
  end
  return table.concat(out, "\n")
end

-- One column of a table as bars: flin's and the peer's. which: "2", and the
-- head of the column.
function variants.bars(which, out)
  local number, shape = which:match "^(%d) (.+)$"
  local t, rows = tables()[tonumber(number)], {}
  for c = 2, #t.head do
    for i = 2, t.head[c] == shape and #t.rows or 0 do
      local ours, theirs = t.rows[i][c]:match "^(%S+) | (%S+)$"
      rows[#rows + 1] = { name = t.rows[i][1],
                          values = { tonumber(ours), tonumber(theirs) } }
    end
  end
  if #rows == 0 then
    error("README.md has no column '" .. shape .. "'", 0)
  end
  local file = ("speed-%s.svg"):format(number)
  snippets.write(out .. "/" .. file, flin.picture.bars(rows, {
    series = { "flin", "peer" }, unit = "ms", title = shape }))
  return figure(file, "Milliseconds at " .. shape .. ": shorter is faster")
end

-- ---- pages ----

-- out: the folder for pictures.
function variants.page(name, out)
  local v = flin.stdlib[name]
  local parts = {
    ("# %s\n"):format(name), with_links(said(name)) .. "\n",
    "## One token\n", equation.of(v),
    ("\n[Notation](variants.md#notation). As flin reads it, "
     .. "`stdlib/%s.lua`:\n"):format(name),
    "```lua\n" .. source(name):gsub("^%-%-.-\nlocal", "local")
      :gsub("\nreturn flin.variant", "\nlocal v = flin.variant") .. "```\n",
    "## Arguments\n", arguments(v), "",
    calls(v, name),
    "## What flin derives\n", "```text\n" .. v.form:gsub("\n+$", "")
      .. "\n```\n",
  }
  local picture = mask(v, name, out)
  if picture then
    parts[#parts + 1] = "## Its mask\n\n" .. picture .. "\n"
  end
  parts[#parts + 1] = "## Its plan\n\n" .. plan(v, name, out) .. "\n"
  parts[#parts + 1] = "## Speed\n\n" .. speed(name) .. "\n"
  return table.concat(parts, "\n") .. "\n"
end

local function first_sentence(text)
  return text:match "^(.-%))[.:]" or text:match "^(.-)%. " or text
end

-- The table of all.
function variants.list()
  local out = { "| variant | | states |\n|---|---|---|" }
  for _, name in ipairs(flin.stdlib_names) do
    local v, states = flin.stdlib[name], {}
    for _, s in ipairs(v.states) do
      if not s.name:find "^prev" then
        states[#states + 1] = ("%s [%s]"):format(s.name, s.axes)
      end
    end
    out[#out + 1] = ("| [%s](variant-%s.md) | %s | %s |"):format(name, name,
      with_links(first_sentence(said(name))), table.concat(states, ", "))
  end
  return table.concat(out, "\n")
end

return variants
