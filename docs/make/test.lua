-- test.lua -- runs the snippets of pages, and compares what they print with
-- what the page shows.
--
--   flin docs/make/test.lua PAGE.md...
--   flin docs/make/test.lua --bless PAGE.md...   takes what they print
--
-- Runs in the root of the source tree. The language of fences is described in
-- snippets.lua.
local snippets = require "snippets"
local html = require "html"

local pages = { ... }
local bless = pages[1] == "--bless" and table.remove(pages, 1)
local passed, failed, skipped = 0, 0, 0

local function fail(page, block, what, text)
  failed = failed + 1
  print(("FAIL  %s:%d: %s\n%s"):format(page, block.line, what, text))
end

-- The page with each output replaced by what was printed.
local function blessed(text, blocks)
  local lines, out, i = snippets.lines(text), {}, 1
  local at = {}
  for _, block in ipairs(blocks) do
    if block.want_line then
      at[block.want_line] = block
    end
  end
  while i <= #lines do
    out[#out + 1] = lines[i]
    if at[i] and not snippets.same(at[i].want, at[i].got) then
      out[#out + 1] = at[i].got:gsub("\n$", "")
      repeat
        i = i + 1
      until lines[i] == "```"
      out[#out + 1] = lines[i]
    end
    i = i + 1
  end
  return table.concat(out, "\n") .. "\n"
end

-- Is there such a heading?
local function has_heading(text, id)
  for heading in ("\n" .. text):gmatch "\n#+ ([^\n]*)" do
    if html.slug((heading:gsub("`", ""))) == id then
      return true
    end
  end
  return text:find(('<h3 id="%s">'):format(id), 1, true) ~= nil
end

-- Links to other pages of Markdown, and to headings, lead somewhere.
local function test_links(page, text)
  local folder = page:match "^(.*/)[^/]*$" or ""
  text = text:gsub("\n```.-\n```", "")
  for target in text:gmatch "%]%(([^)%s]+)%)" do
    local file, id = target:match "^([^#]*)#?(.*)$"
    local found = target:find "^https://" or file == "" and page
                  or io.open(folder .. file) and folder .. file
    if not found or not target:find "^https://" and id ~= ""
       and not has_heading(snippets.read(found), id) then
      fail(page, { line = 1 }, "dead link", target)
    else
      passed = passed + 1
    end
  end
end

local function test(page)
  local text = snippets.read(page)
  test_links(page, text)
  local blocks = snippets.find(page, text)
  local dir = os.tmpname()
  os.remove(dir)
  os.execute("mkdir " .. dir)
  local where = snippets.where(io.popen "pwd":read "l", dir)
  where.page = page
  snippets.run(where, blocks)
  os.execute("rm -rf " .. dir)
  for _, block in ipairs(blocks) do
    if block.skipped then
      skipped = skipped + 1
    elseif block.bad then
      fail(page, block, block.bad, block.got)
    elseif block.want and not bless
           and not snippets.same(block.want, block.got) then
      fail(page, block, "it prints something else",
           "the page says:\n" .. block.want .. "it prints:\n" .. block.got)
    else
      passed = passed + 1
    end
  end
  if bless then
    snippets.write(page, blessed(text, blocks))
  end
end

for _, page in ipairs(pages) do
  test(page)
end
if skipped > 0 and passed + failed == 0 then
  print("skip: no Python with what the page wants")
else
  print(("%d passed, %d failed"):format(passed, failed))
end
os.exit(failed == 0)
