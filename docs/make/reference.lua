-- reference.lua -- the pages to look things up in, made of what says it
-- already: the table behind `?`, flin.h, Python's docstrings, the program.
local flin = require "flin"
local snippets = require "snippets"
local html = require "html"

local reference = {}
local index = {}                -- name, page, anchor, brief

local function note(name, page, heading, brief)
  index[#index + 1] = { name = name, brief = brief or "",
                        to = page .. ".md#" .. html.slug(heading) }
end

-- Prose for Markdown: what would be a sign there stands for itself, but for
-- what is between backticks.
local function prose(text)
  local parts, code = {}, false
  for piece, tick in (text .. "`"):gmatch "([^`]*)(`)" do
    if not code then
      piece = piece:gsub("[\\*_<%[|#]", "\\%0")
    end
    parts[#parts + 1] = piece
    parts[#parts + 1] = tick
    code = not code
  end
  parts[#parts] = nil
  return table.concat(parts)
end

-- What a row says more: prose, and Lua from a line that opens a table or a
-- function to the one that closes it.
local function with_code(text)
  local out, code = {}, false
  for _, line in ipairs(snippets.lines(text)) do
    if not code and (line:find "^%S+ {$" or line:find "^%w+ = function") then
      code = true
      out[#out + 1] = "\n```lua"
    end
    out[#out + 1] = code and line or prose(line)
    if code and (line == "}" or line == "end") then
      code = false
      out[#out + 1] = "```\n"
    end
  end
  return table.concat(out, "\n")
end

-- ---- Lua ----

-- The sections of the table: title, and the names in it.
local function sections()
  local found = {}
  local text = snippets.read "lang/lua/builtins.lua"
  for _, line in ipairs(snippets.lines(text)) do
    local title = line:match "^%-%- %-%-%-%- (.-) %-%-%-%-$"
    local kind, name = line:match '^(%l+)%("([^"]+)"'
    if title then
      found[#found + 1] = { title = title }
    elseif name and kind ~= "local" then
      table.insert(found[#found], (kind == "unary" and "flin." or "") .. name)
    end
  end
  return found
end

-- What `?name` says, apart: the first line, what it is, the rest.
local function entry(name)
  local text = flin.help(name)
  local call, brief, more = text:match "^([^\n]*)\n  ([^\n]*)\n(.*)$"
  return call, brief, (more:gsub("^  ", ""):gsub("\n  ", "\n"))
end

-- A heading under the name that shows how it is called.
local function heading(name, call)
  local id = html.slug(name)
  return ('<h3 id="%s"><code>%s</code> <a class="here" href="#%s" '
          .. 'aria-label="link to this">#</a></h3>\n')
         :format(id, html.escape(call), id)
end

-- A brief as a sentence.
local function sentence(text)
  local first = text:match "^flin" and text:sub(1, 1)
                or text:sub(1, 1):upper()
  return prose(first .. text:sub(2)) .. (text:find "[.?]$" and "" or ".")
end

local function entries(names, page)
  local out = {}
  for _, name in ipairs(names) do
    local call, brief, more = entry(name)
    note(name, page, name, brief)
    out[#out + 1] = ("%s\n%s\n\n%s"):format(heading(name, call),
                    sentence(brief), with_code(more))
  end
  return table.concat(out, "\n")
end

function reference.lua()
  local out = {}
  for _, section in ipairs(sections()) do
    if section.title ~= "the environment" then
      local title = section.title:sub(1, 1):upper() .. section.title:sub(2)
      out[#out + 1] = ("## %s\n\n%s"):format(title, entries(section, "lua"))
    end
  end
  return table.concat(out, "\n")
end

-- ---- the program ----

-- Variables that the sources ask for are those of the table.
local function check_variables(names)
  local known = {}
  for _, name in ipairs(names) do
    known[name] = true
  end
  local asked = snippets.output(
    [[grep -rhoE '(getenv\(|environ\.get\(|environ\[)"[A-Z_0-9]+"' \
      compiler lang backend repl]])
  for name in asked:gmatch '"([^"]+)"' do
    if not known[name] then
      error(name .. " is asked for, but not in lang/lua/builtins.lua", 0)
    end
  end
end

function reference.environment()
  local out = { "| variable | what it does |\n|---|---|" }
  for _, section in ipairs(sections()) do
    if section.title == "the environment" then
      check_variables(section)
      for _, name in ipairs(section) do
        local call, brief, more = entry(name)
        note(name, "program", "the environment", brief)
        out[#out + 1] = ("| `%s` | %s %s |"):format(call, sentence(brief),
          prose((more:gsub("\n", " "))))
      end
    end
  end
  return table.concat(out, "\n")
end

function reference.program()
  local out = { "## The command line\n\n```text\n"
                .. snippets.output "flin --help" .. "```\n",
                "## Commands of the prompt\n" }
  local help = snippets.output "echo :help | flin"
  local names, questions = {}, {}
  for name in ("\n" .. help):gmatch "\n(:%l+)" do
    names[#names + 1] = name
    questions[#questions + 1] = "?" .. name
  end
  local texts = snippets.output(("printf '%%s\\n' %s | flin")
    :format(snippets.quote(table.concat(questions, "\n"))))
  for i, name in ipairs(names) do
    local from = texts:find(name, 1, true)
    local to = names[i + 1] and texts:find("\n" .. names[i + 1], from, true)
               or #texts
    local call, rest = texts:sub(from, to):match "^([^\n]*)\n(.*)$"
    rest = rest:gsub("^%s+", ""):gsub("\n%s+", "\n"):gsub("%s+$", "")
    note(name, "program", name, rest:match "^[^\n]*")
    out[#out + 1] = ("%s\n%s\n"):format(heading(name, call),
      prose((rest:gsub("^%l", string.upper)):gsub("\n", ".\n", 1)
            :gsub("([^.])$", "%1.")))
  end
  local keys = help:match "\n\n(.*)$"
  out[#out + 1] = "## Keys\n\n" .. prose(keys)
  return table.concat(out, "\n")
end

-- ---- domains ----

-- Name, what is wanted, and how values are drawn, of each row of the table.
function reference.domains()
  local list = {}
  local text = snippets.read "compiler/domains.def":gsub("/%*.-%*/", "")
  local row = "DOMAIN%(([%w_]+), (%u+), ([^\n]-), (%u+), ([^\n]*\n?[^\n]*)"
  for name, from, draw, of, rest in text:gmatch(row) do
    local wanted = rest:find "FINITE" and "finite" or rest:match '"([^"]*)"'
    if draw:find "^3.14159" then
      draw = "pi (2 x - 1)"
    end
    list[#list + 1] = { name = name, wanted = wanted, row = of == "ROW",
                        draw = draw:lower(), from = from:lower() }
  end
  return list
end

function reference.domain_table()
  local out = { "| domain | each value is | random ones are |\n|---|---|---|" }
  for i, d in ipairs(reference.domains()) do
    out[#out + 1] = ("| `%s`%s | %s | %s |"):format(d.name, i == 1 and
      ", or none" or "", d.row and "of a row " .. d.wanted or d.wanted,
      d.row and "normal, scaled to length 1" or d.draw == "x" and d.from or
      ("`%s`, x %s"):format(d.draw, d.from))
  end
  return table.concat(out, "\n")
end

-- ---- peers ----

local PEERS <const> = [[
import ast
for node in ast.parse(open("tests/bench/peer_ops.py").read()).body:
    if isinstance(node, ast.Assign) and node.targets[0].id == "OPS":
        for ours, theirs in (v.elts[:2] for v in node.value.values):
            if isinstance(ours, ast.Constant):
                print(ours.value, theirs.value)
]]

-- Of the benchmark's table: our variant, and their function.
function reference.peers()
  local out = { "| flin | function | of |\n|---|---|---|" }
  local text = snippets.output("python3 -c " .. snippets.quote(PEERS))
  for ours, theirs in text:gmatch "(%S+) (%S+)" do
    out[#out + 1] = ("| [%s](variant-%s.md) | `%s` | %s |"):format(ours, ours,
      theirs:match "[^.]+$", theirs:find "^mamba" and "mamba"
                                 or "flash-linear-attention")
  end
  return table.concat(out, "\n")
end

-- ---- C ----

-- A comment's text without its stars, as Markdown: lines that stand in are
-- code where they are C, and lists where they begin with a dash.
local function comment_text(text)
  text = text:gsub("^/%*+ ?", ""):gsub("%s*%*/%s*$", "")
  text = text:gsub("\n %* ?", "\n")
  local out, code = {}, nil
  for _, line in ipairs(snippets.lines(text)) do
    local inner = line:match "^   +(.*)$"
    local listed = out[#out] and out[#out]:find "^%-"
    if inner and not code and not (listed or line:find "^   %l") then
      out[#out + 1], code = "```header", true
    elseif code and not inner and line ~= "" then
      if out[#out] == "" then
        out[#out] = nil
      end
      out[#out + 1], code = "```\n", nil
    end
    out[#out + 1] = code and line:gsub("^    ", "")
                    or prose((line:gsub("^  +", "  ")))
  end
  if code then
    out[#out + 1] = "```\n"
  end
  return (table.concat(out, "\n"):gsub("\\%*\\%*(%w+)\\%*\\%*", "**%1**"))
end

-- What a declaration declares: functions, types, macros.
local function declared(text)
  local names = {}
  for name in text:gmatch "([%w_]+)%(" do
    if name:find "^flin_%l" or name == "luaopen_flin" then
      names[#names + 1] = name
    end
  end
  local kind = text:match "^typedef %l+ (flin_%w+)"
  if kind then
    names = { kind }
  end
  return names
end

-- The header in pieces: sections, comments, declarations.
local function pieces(text)
  local list, i = {}, 1
  while i <= #text do
    local blank = text:match("^%s+", i)
    if blank then
      i = i + #blank
    elseif text:find("^/%*", i) then
      local stop = select(2, text:find("*/", i, true))
      local comment = text:sub(i, stop)
      local title = comment:match "^/%* %-%-%-%- (.-) %-%-%-%- %*/$"
      list[#list + 1] = title and { title = title } or { comment = comment }
      i = stop + 1
    else
      local stop = text:find("\n\n", i, true) or #text
      local inner = text:find("\n/*", i, true)
      local code = text:sub(i, (inner and inner < stop and inner or stop) - 1)
      local depth = select(2, code:gsub("{", "")) - select(2, code:gsub("}",
                                                                        ""))
      -- A struct with empty lines in it.
      while depth > 0 and not code:find "^#if" do
        stop = text:find("\n\n", stop + 1, true) or #text
        code = text:sub(i, stop - 1)
        depth = select(2, code:gsub("{", "")) - select(2, code:gsub("}", ""))
      end
      list[#list + 1] = { code = code }
      i = i + #code
    end
  end
  return list
end

local function is_shown(code)
  return not (code:find "^#if" or code:find "^#endif" or code:find "^#include"
              or code:find '^extern "C"' or code:find "^#define FLIN_API"
              or code == "}" or code:find "^struct lua_State;$")
end

-- Functions that the header declares and the page does not name.
local function check_functions(header, names)
  for name in header:gmatch "\nFLIN_API [^;(]-([%w_]+)%(" do
    if not names[name] then
      error("flin.h: " .. name .. " is not on the page", 0)
    end
  end
end

function reference.c()
  local header, known = snippets.read "lang/flin.h", {}
  local out, waiting, first = {}, nil, true
  for _, piece in ipairs(pieces(header)) do
    if piece.title then
      local title = piece.title:sub(1, 1):upper() .. piece.title:sub(2)
      out[#out + 1] = "## " .. title .. "\n"
    elseif piece.comment and first then
      out[#out + 1] = comment_text(piece.comment):gsub("^[^\n]*\n", "", 1)
      first = false
    elseif piece.comment then
      waiting = piece.comment
    elseif is_shown(piece.code) then
      local names = declared(piece.code)
      if #names > 0 then
        local heading = table.concat(names, ", ")
        local brief = waiting and comment_text(waiting):match "^[^\n.:;]*"
        for _, name in ipairs(names) do
          note(name, "c", heading, brief)
          known[name] = true
        end
        out[#out + 1] = ("### `%s`\n"):format(table.concat(names, "`, `"))
      end
      out[#out + 1] = ("```header\n%s\n```\n"):format(piece.code)
      if waiting then
        out[#out + 1] = comment_text(waiting) .. "\n"
      end
      waiting = nil
    end
  end
  check_functions(header, known)
  return table.concat(out, "\n")
end

-- ---- Python ----

function reference.python()
  local text = snippets.output
    "python3 docs/make/python_names.py lang/python/flin"
  for name, brief in text:gmatch "\n### `([^`]+)`\n.-\n<!%-%- (.-) %-%->" do
    note(name, "python", name, brief)
  end
  text = text:gsub("### `([^`]+)`\n\n```text\n([^\n]+)\n```\n", heading)
  return (text:gsub("<!%-%- .- %-%->\n", ""))
end

-- ---- all names ----

function reference.names(site)
  -- The pages that note names come first: they are made here, if not yet.
  index = {}
  reference.lua()
  reference.environment()
  reference.program()
  reference.c()
  reference.python()
  for _, name in ipairs(flin.stdlib_names) do
    index[#index + 1] = { name = name, to = "variant-" .. name .. ".md",
                          brief = "a variant of the standard library" }
  end
  local function key(e)
    return (e.name:gsub("^flin[._]", ""):gsub("^[vtg][.:]", "")
            :gsub("^%W+", "")):lower() .. " " .. e.name
  end
  table.sort(index, function (a, b) return key(a) < key(b) end)
  local out = { "| name | what it is |\n|---|---|" }
  for _, e in ipairs(index) do
    out[#out + 1] = ("| [`%s`](%s) | %s |"):format(e.name, e.to,
                                                    prose(e.brief))
  end
  return table.concat(out, "\n")
end

return reference
