-- snippets.lua -- the code on a page: found, run, and what it prints.
--
-- A fence names the language of what it holds:
--   ```lua          one script a page, run after all else: a local of one block
--   ```python       is there in the next ones
--   ```c            compiled; linked and run if it has a main
--   ```sh           run at its place, with `sh -e`; `sh fails` must fail, `sh
--                   nvrtc` is for machines that can compile for a GPU
--   ```flin         lines for the prompt
--   ```lua own.lua  a file, written at its place and run; any language; with
--                   `fails` it must, with `unrun` it is only written
--   ```output       what the block before it prints, compared
--   ```text         no code; made pages have `shown` and `header`, too
-- <!-- lua ... --> holds code that readers do not see, `<!-- output -->` takes
-- what the block before it prints when the page is made.
--
-- In an output `...` stands for anything, and a line of it alone for any lines.
-- A number below 1e-3 beside one of at most ten times or a tenth of it is the
-- same: errors of rounding differ between processors.
local snippets = {}

local LANGUAGES = { lua = true, python = true, c = true, sh = true,
                    flin = true, output = true, text = true, shown = true,
                    header = true }
local SILENT = { text = true, shown = true, header = true }
local SESSION = { lua = true, python = true }

local function fault(page, line, ...)
  error(("%s:%d: %s"):format(page, line, string.format(...)), 0)
end

-- The lines of a text, the last one with or without its end.
function snippets.lines(text)
  local list = {}
  for line in (text:gsub("\n$", "") .. "\n"):gmatch "(.-)\n" do
    list[#list + 1] = line
  end
  return list
end

local function describe(page, at, words)
  local block = { line = at, lang = words:match "^%S+", text = {} }
  for word in words:gmatch "%S+" do
    if word == "fails" or word == "nvrtc" or word == "unrun" then
      block[word] = true
    elseif word:find "%." then
      block.file = word
    elseif word ~= block.lang then
      fault(page, at, "'%s' after ``` says nothing", word)
    end
  end
  if not LANGUAGES[block.lang or ""] then
    fault(page, at, "``` and a language is wanted: lua, python, c, sh, flin, "
          .. "output or text, not '%s'", words)
  end
  return block
end

-- The blocks of a page's text, in order. An output hangs on the block before
-- it as `want`; wants_output: <!-- output --> behind it.
function snippets.find(page, text)
  local blocks, open, closing, latest = {}, nil, nil, nil
  for at, line in ipairs(snippets.lines(text)) do
    local hidden = line:match "^<!%-%- (%l+)$"
    local words = line:match "^```(.+)$" or line == "```" and ""
                  or LANGUAGES[hidden] and hidden
    if open and line == closing then
      open.last = at
      open.text = table.concat(open.text, "\n") .. "\n"
      if open.lang == "output" then
        if not latest then
          fault(page, open.line, "output of no block")
        end
        latest.want, latest.want_line = open.text, open.line
      elseif not SILENT[open.lang] then
        blocks[#blocks + 1], latest = open, open
      end
      open = nil
    elseif open then
      open.text[#open.text + 1] = line
    elseif line == "<!-- output -->" then
      if not latest then
        fault(page, at, "output of no block")
      end
      latest.wants_output = at
    elseif words then
      open = describe(page, at, words)
      open.hidden = hidden ~= nil
      closing = hidden and "-->" or "```"
    elseif line:find "^%s+```" then
      fault(page, at, "a fence starts its line")
    end
  end
  if open then
    fault(page, open.line, "no end of this block")
  end
  return blocks
end

-- ---- running ----

local function quote(text)
  return "'" .. text:gsub("'", "'\\''") .. "'"
end
snippets.quote = quote

function snippets.write(path, text)
  local f <close> = assert(io.open(path, "wb"))
  assert(f:write(text))
end

function snippets.read(path)
  local f <close> = assert(io.open(path, "rb"))
  return f:read "a"
end

-- What it prints on both streams, and whether it ends well.
local function run(where, command)
  local p = io.popen(("exec 2>&1 </dev/null; cd %s && timeout 120 %s")
                     :format(quote(where.dir), command))
  local out = p:read "a"
  return out, (p:close())
end

local function first_line(command)
  local p = io.popen(command)
  local line = p:read "l"
  p:close()
  return line
end

-- A Python with PyTorch, or at least NumPy; $PYTHON, if given: its command, or
-- false, and whether it has PyTorch.
local function python(root, build)
  for _, module in ipairs { "torch", "numpy" } do
    local found = first_line(([[
for p in ${PYTHON:-python3 /usr/bin/python3}; do
  "$p" -c 'import importlib.util as u, sys
sys.exit(u.find_spec("%s") is None)' 2>/dev/null && echo "$p" && break
done]]):format(module))
    if found then
      return ("env PYTHONPATH=%s FLIN_LIB=%s PYTHONDONTWRITEBYTECODE=1 %s")
             :format(quote(root .. "/lang/python"),
                     quote(build .. "/libflin.so"), found), module == "torch"
    end
  end
  return false
end

local MARK = "\1"

-- Blocks of one language as one script, each at its own line; what each has
-- printed, by block. A hidden "skip" line means that it cannot run here.
local SAY = {
  lua = ("io.write('\\n%s %%d\\n')"):format("\\1"),
  python = ("print('\\n%s %%d', flush=True)"):format("\\1"),
}

local function session(where, lang, blocks)
  local lines = {}
  for i, block in ipairs(blocks) do
    for at = #lines + 1, block.line - 1 do
      lines[at] = ""
    end
    lines[block.line] = SAY[lang]:format(i)
    for _, line in ipairs(snippets.lines(block.text)) do
      lines[#lines + 1] = line
    end
  end
  local name = where.page:match "[^/]+$"
  snippets.write(where.dir .. "/" .. name, table.concat(lines, "\n") .. "\n")
  local out, good = run(where, ("%s %s"):format(where[lang], quote(name)))
  local latest = 0
  for line in (out .. "\n"):gmatch "(.-)\n" do
    local i = line:match("^" .. MARK .. " (%d+)$")
    if i then
      latest = tonumber(i)
      blocks[latest].got = {}
    elseif latest > 0 then
      table.insert(blocks[latest].got, line)
    else
      blocks[1].got = blocks[1].got or {}
      table.insert(blocks[1].got, line)
    end
  end
  for i, block in ipairs(blocks) do
    block.got = table.concat(block.got or {}, "\n")
    block.bad = not good and i >= latest and "it stops with an error"
  end
end

-- What is wrong with how it ended, if anything is.
local function verdict(block, good)
  if block.fails then
    return good and "it does not fail"
  end
  return not good and "it fails"
end

local function compile(where, block)
  local name = block.file or ("line%d.c"):format(block.line)
  snippets.write(where.dir .. "/" .. name, block.text)
  local whole = block.text:find "int main%("
  local out, good = run(where, ("%s -std=c11 -Wall -Wextra -Werror "
    .. "-Wno-missing-field-initializers -I%s %s %s"):format(where.cc,
    quote(where.root .. "/lang"), quote(name), whole and
    ("-L%s -Wl,-rpath,%s -lflin -lm -o program && ./program")
    :format(quote(where.build), quote(where.build)) or "-c -o unit.o"))
  block.got, block.bad = out, verdict(block, good)
end

local RUN = {}

function RUN.sh(where, block)
  local out, good = run(where, ("env PATH=%s:\"$PATH\" sh -e -c %s")
                               :format(quote(where.build), quote(block.text)))
  block.got, block.bad = out, verdict(block, good)
end

function RUN.flin(where, block)
  local text = ("\n" .. block.text):gsub("\n> ", "\n")
  snippets.write(where.dir .. "/prompt", text:sub(2))
  local out, good = run(where, where.lua .. " <prompt")
  block.got, block.bad = out, verdict(block, good)
end

RUN.c = compile

local function run_file(where, block)
  if block.lang == "c" then
    return compile(where, block)
  end
  snippets.write(where.dir .. "/" .. block.file, block.text)
  if SESSION[block.lang] and not block.unrun then
    local out, good = run(where, where[block.lang] .. " " .. block.file)
    block.got, block.bad = out, verdict(block, good)
  end
end

-- Is NVRTC here?
local function compiles(where)
  if where.nvrtc == nil then
    local _, good = run(where, where.lua
                        .. " --compile-only --arch sm_90a stdlib/linear.lua")
    where.nvrtc = good or false
  end
  return where.nvrtc
end

-- Runs the blocks; each gets `got`, what it printed, and `bad`, what is wrong
-- or nil or false. where: dir, an empty folder; root, build, full paths; lua,
-- python, cc, commands; page. Without Python its blocks are `skipped`.
function snippets.run(where, blocks)
  local later = { lua = {}, python = {} }
  local with, wants_torch = false, false
  for _, block in ipairs(blocks) do
    local is_python = block.lang == "python"
    with = with or is_python
    wants_torch = wants_torch or is_python and block.text:find "import torch"
  end
  if with and where.python == nil then
    where.python, where.torch = python(where.root, where.build)
  end
  local no_python = not where.python or wants_torch and not where.torch
  for _, block in ipairs(blocks) do
    if block.lang == "python" and no_python
       or block.nvrtc and not compiles(where) then
      block.skipped, block.got = true, ""
    elseif block.file then
      run_file(where, block)
    elseif SESSION[block.lang] then
      table.insert(later[block.lang], block)
    else
      RUN[block.lang](where, block)
    end
  end
  for lang, some in pairs(later) do
    if #some > 0 then
      session(where, lang, some)
    end
  end
  for _, block in ipairs(blocks) do
    if block.got then
      block.got = (block.got .. "\n"):gsub("[ \t]+\n", "\n"):gsub("^\n+", "")
                  :gsub("\n+$", "\n")
    end
  end
end

-- The folder of this tree's build, its full path.
local function build_of(root)
  local build = os.getenv "BUILD" or "build"
  return build:sub(1, 1) == "/" and build or root .. "/" .. build
end

-- What a command prints that finds this tree's flin.
function snippets.output(command)
  local root = first_line "pwd"
  local p = io.popen(("PATH=%s:\"$PATH\"; %s"):format(quote(build_of(root)),
                                                      command))
  local text = p:read "a"
  if not p:close() then
    error(("%s fails:\n%s"):format(command, text), 0)
  end
  return text
end

-- Where snippets run: in the folder dir, with the program and the library of
-- this tree's build.
function snippets.where(root, dir)
  local build = build_of(root)
  for _, folder in ipairs { "stdlib", "examples" } do
    os.execute(("ln -sf %s %s"):format(quote(root .. "/" .. folder),
                                       quote(dir .. "/" .. folder)))
  end
  os.execute(("ln -sf %s %s"):format(quote(build), quote(dir .. "/build")))
  return { root = root, dir = dir, build = build,
           cc = os.getenv "CC" or "cc",
           lua = ("env PATH=%s:\"$PATH\" flin"):format(quote(build)) }
end

-- ---- comparing ----

local function small(a, b)
  a, b = tonumber(a), tonumber(b)
  return a and b and a > 0 and b > 0 and a < 1e-3 and b < 1e-3
         and a / b < 10 and b / a < 10
end

-- Words, so that a number stands alone; spaces between words are one.
local function words(line)
  local list = {}
  for word in line:gmatch "[^%s,()]+" do
    list[#list + 1] = word
  end
  return list
end

local function same_line(want, got)
  if want == got then
    return true
  elseif want:find("...", 1, true) then
    local pattern = want:gsub("%.%.%.", "\0"):gsub("%p", "%%%0")
                    :gsub("%s+", "%%s+"):gsub("%z", ".*")
    return got:find("^%s*" .. pattern:gsub("^%%s%+", "") .. "$") ~= nil
  end
  want, got = words(want), words(got)
  for i = 1, math.max(#want, #got) do
    if want[i] ~= got[i] and not small(want[i], got[i]) then
      return false
    end
  end
  return true
end

local function same_from(want, got, i, j)
  while i <= #want do
    if want[i] == "..." then
      for k = j, #got + 1 do
        if same_from(want, got, i + 1, k) then
          return true
        end
      end
      return false
    elseif j > #got or not same_line(want[i], got[j]) then
      return false
    end
    i, j = i + 1, j + 1
  end
  return j > #got
end

local function trimmed(text)
  local list = snippets.lines(text)
  for i, line in ipairs(list) do
    list[i] = line:gsub("%s+$", "")
  end
  return list
end

function snippets.same(want, got)
  return same_from(trimmed(want), trimmed(got), 1, 1)
end

return snippets
