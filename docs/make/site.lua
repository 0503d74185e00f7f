-- site.lua -- the pages: docs/*.md with what is made for them put in, the pages
-- that are made whole, and all of it as HTML.
--
--   flin docs/make/site.lua FOLDER          pages as HTML (make docs)
--   flin docs/make/site.lua --text FOLDER   as Markdown, for the tests
--
-- Runs in the root of the source tree, by the flin whose pages they are. A line
-- `<!-- make: NAME ARGUMENTS -->` becomes what the function NAME returns.
local flin = require "flin"
local snippets = require "snippets"
local html = require "html"
local equation = require "equation"
local reference = require "reference"
local variants = require "variants"

local site = {
  version = flin.version, titles = {}, below = { variants = {} },
  groups = {
    { title = "Learn", "index", "tutorial", "language", "masks", "chunks",
      "calls", "ranks", "from-fla" },
    { title = "Understand", "how", "variants", "speed", "promises" },
    { title = "Look up", "lua", "python", "c", "program", "names" },
  },
}

-- ---- what is put in ----

local make = {}

function make.equation(name)
  return equation.of(flin.stdlib[name])
end

make.lua = reference.lua
make.python = reference.python
make.c = reference.c
make.program = reference.program
make.environment = reference.environment
make.names = function ()
  return reference.names(site)
end
make.peers = reference.peers
make.domains = reference.domain_table
make.variants = variants.list
make.table = variants.speed_table
make.bars = function (which)
  return variants.bars(which, site.dir)
end

local function fill(page, text)
  return (text:gsub("<!%-%- make: (%S+) ?(.-) ?%-%->", function (name, more)
    if not make[name] then
      error(("docs/%s.md: nothing makes '%s'"):format(page, name), 0)
    end
    return (make[name](more ~= "" and more or nil):gsub("\n+$", ""))
  end))
end

local function command(text)
  if not os.execute(text) then
    error("failed: " .. text, 0)
  end
end

-- Those up to the last whose output is wanted: files and sh, and of a language
-- whose blocks are one script all, if any of them is.
local function wanted(blocks)
  local some, last, asked = {}, 0, {}
  for i, block in ipairs(blocks) do
    if block.wants_output then
      last, asked[block.lang] = i, not block.file
    end
  end
  for i, block in ipairs(blocks) do
    local one_script = not block.file and block.lang ~= "sh"
    if (one_script and asked[block.lang]) or (not one_script and i <= last) then
      some[#some + 1] = block
    end
  end
  return some
end

-- What a page's snippets print, where it asks for that.
local function with_outputs(where, page, text)
  if not text:find("<!-- output -->", 1, true) then
    return text
  end
  local lines = snippets.lines(text)
  local blocks = wanted(snippets.find(page, text))
  local dir = where.scratch .. "/" .. page
  command("mkdir " .. dir)
  local here = snippets.where(where.root, dir)
  here.page = page .. ".md"
  snippets.run(here, blocks)
  for _, block in ipairs(blocks) do
    if block.bad then
      error(("docs/%s.md:%d: %s\n%s"):format(page, block.line, block.bad,
                                             block.got), 0)
    end
    if block.wants_output then
      lines[block.wants_output] = "```shown\n" .. block.got .. "```"
    end
  end
  return table.concat(lines, "\n") .. "\n"
end

-- ---- the pages ----

local function title_of(page, text)
  local title = text:match "^# ([^\n]+)" or text:match "\n# ([^\n]+)"
  if not title then
    error(("docs/%s.md: no line '# TITLE'"):format(page), 0)
  end
  return (title:gsub("`", ""))
end

-- Markdown by the page's name.
local function texts(where)
  local found = {}
  for _, group in ipairs(site.groups) do
    for _, page in ipairs(group) do
      found[page] = snippets.read(("docs/%s.md"):format(page))
      site.titles[page] = title_of(page, found[page])
    end
  end
  for _, name in ipairs(flin.stdlib_names) do
    local page = "variant-" .. name
    found[page] = variants.page(name, where.out)
    site.titles[page] = name
    table.insert(site.below.variants, page)
  end
  for page, text in pairs(found) do
    text = fill(page, text)
    found[page] = with_outputs(where, page, text)
  end
  return found
end

local function main(...)
  local options = { ... }
  local as_text = options[1] == "--text"
  local out = options[as_text and 2 or 1]
  if not out then
    error("site.lua: the folder for the pages is wanted", 0)
  end
  local root = io.popen "pwd":read "l"
  local scratch = os.tmpname()
  os.remove(scratch)
  command(("mkdir -p %s %s"):format(snippets.quote(out), scratch))
  local where = { root = root, scratch = scratch, out = out }
  site.dir = out
  local found = texts(where)
  local pages = {}
  for page, text in pairs(found) do
    if as_text then
      snippets.write(("%s/%s.md"):format(out, page), text)
    else
      pages[page .. ".html"] = html.page(site, page, text)
    end
  end
  command("rm -rf " .. scratch)
  if as_text then
    return
  end
  snippets.write(out .. "/style.css", snippets.read "docs/make/style.css")
  for file, text in pairs(pages) do
    snippets.write(out .. "/" .. file, text)
  end
  local faults = html.faults(pages, out)
  if #faults > 0 then
    error("faults of the pages:\n  " .. table.concat(faults, "\n  "), 0)
  end
end

main(...)
