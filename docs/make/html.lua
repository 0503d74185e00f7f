-- html.lua -- pages of Markdown as HTML, by cmark-gfm; their links checked.
local snippets = require "snippets"

local html = {}

local ENTITY = { ["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;",
                 ['"'] = "&quot;" }

function html.escape(text)
  return (text:gsub('[&<>"]', ENTITY))
end

local function unescape(text)
  for plain, entity in pairs(ENTITY) do
    if plain ~= "&" then
      text = text:gsub(entity, plain)
    end
  end
  return (text:gsub("&amp;", "&"))
end

-- "v:forward": v-forward. What a heading, and a link to it, is called; names of
-- C keep their capitals.
function html.slug(text)
  text = text:gsub("<[^>]*>", ""):gsub("&%w+;", "")
  text = text:find "^%w+_[%w_]*$" and text or text:lower()
  return (text:gsub("[^%w_]+", "-"):gsub("^%-", ""):gsub("%-$", ""))
end

-- ---- colours ----

local function set(words)
  local found = {}
  for word in words:gmatch "%S+" do
    found[word] = true
  end
  return found
end

local KEYWORDS = {
  lua = set [[and break do else elseif end false for function goto if in local
    nil not or repeat return then true until while]],
  python = set [[and as assert break class continue def del elif else except
    finally for from if import in is lambda None not or pass raise return try
    while with yield True False]],
  c = set [[auto break case char const continue default do double else enum
    extern float for if int long return short signed sizeof static struct
    switch typedef union unsigned void while int64_t size_t uint32_t uint64_t
    FLIN_API NULL]],
  sh = {},
}

-- Patterns of what starts at a place: its class.
local function literal(lang, text, i)
  local comment = lang == "lua" and text:match("^%-%-[^\n]*", i)
                  or (lang == "python" or lang == "sh")
                  and text:match("^#[^\n]*", i)
                  or lang == "c" and text:match("^/%*.-%*/", i)
  if comment then
    return comment, "comment"
  end
  local quoted = text:match('^"[^"\n]*"', i)
                 or lang ~= "sh" and text:match("^'[^'\n]*'", i)
                 or lang == "lua" and text:match("^%[%[.-%]%]", i)
  if quoted then
    return quoted, "string"
  end
  local number = text:match("^%d[%w.]*", i)
  if number then
    return number, lang ~= "sh" and "number"
  end
  local word = text:match("^[%a_][%w_]*", i)
  return word, word and KEYWORDS[lang][word] and "keyword"
end

function html.coloured(lang, text)
  local parts, i = {}, 1
  while i <= #text do
    local piece, class = literal(lang, text, i)
    piece = piece or text:sub(i, i)
    parts[#parts + 1] = class and ('<span class="%s">%s</span>')
                        :format(class, html.escape(piece))
                        or html.escape(piece)
    i = i + #piece
  end
  return table.concat(parts)
end

-- ---- a page ----

-- Without what readers do not see; a file's name above its block.
local function shown(text)
  local out, hidden = {}, false
  for _, line in ipairs(snippets.lines(text)) do
    local lang, file = line:match "^```(%l+)%s+(%S+%.%S+)"
    hidden = hidden or line:find "^<!%-%-" ~= nil
    if lang then
      out[#out + 1] = ('<p class="file">%s</p>\n'):format(html.escape(file))
      out[#out + 1] = "```" .. lang
    elseif not hidden then
      out[#out + 1] = line:gsub("^(```%l+) %l+$", "%1")
    end
    hidden = hidden and not line:find "%-%->$"
  end
  return table.concat(out, "\n") .. "\n"
end

local function converted(text, dir)
  local source = dir .. "/.page"
  snippets.write(source, shown(text))
  local p = io.popen("cmark-gfm -e table --unsafe "
                     .. snippets.quote(source))
  local body = p:read "a"
  if not p:close() then
    error("cmark-gfm fails, or is not there", 0)
  end
  os.remove(source)
  return body
end

-- Headings get names by which they can be linked to.
local function named(body, page)
  local taken, contents = {}, {}
  body = body:gsub("<h([1-4])>(.-)</h%1>", function (level, text)
    local id = html.slug(text)
    if taken[id] then
      error(("%s: two headings are called '%s'"):format(page, id), 0)
    end
    taken[id] = true
    contents[#contents + 1] = { level = tonumber(level), id = id, text = text }
    return ('<h%s id="%s">%s <a class="here" href="#%s" '
            .. 'aria-label="link to this">#</a></h%s>')
           :format(level, id, text, id, level)
  end)
  return body, contents
end

local function with_colours(body)
  return (body:gsub('<pre><code class="language%-(%l+)">(.-)</code></pre>',
    function (lang, text)
      local as = lang == "header" and "c" or lang
      if KEYWORDS[as] then
        text = html.coloured(as, unescape(text))
      end
      return ('<pre class="%s"><code>%s</code></pre>'):format(lang, text)
    end))
end

local TEMPLATE <const> = [[
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8" />
<meta name="viewport" content="width=device-width, initial-scale=1" />
<meta name="color-scheme" content="light dark" />
<title>@TITLE@</title>
<link rel="stylesheet" href="style.css" />
</head>
<body>
<header><a href="index.html">flin @VERSION@</a>
<a href="#pages">pages</a></header>
<main>
@BODY@</main>
<nav id="pages">
@NAV@</nav>
</body>
</html>
]]

-- The list of pages, and under the one that is shown its sections.
local function navigation(site, name, contents)
  local out = {}
  for _, group in ipairs(site.groups) do
    out[#out + 1] = ("<h2>%s</h2>\n<ul>"):format(group.title)
    for _, page in ipairs(group) do
      local here = page == name
      out[#out + 1] = ('<li><a%s href="%s.html">%s</a>'):format(here and
        ' aria-current="page"' or "", page, html.escape(site.titles[page]))
      local inner = {}
      for _, h in ipairs(here and contents or {}) do
        inner[#inner + 1] = h.level == 2 and
          ('<li><a href="#%s">%s</a></li>'):format(h.id, h.text) or nil
      end
      local below = site.below[page] or {}
      local inside = here
      for _, p in ipairs(below) do
        inside = inside or p == name
      end
      for _, p in ipairs(inside and below or {}) do
        inner[#inner + 1] = ('<li><a%s href="%s.html">%s</a></li>')
          :format(p == name and ' aria-current="page"' or "", p,
                  html.escape(site.titles[p]))
      end
      if #inner > 0 then
        out[#out + 1] = "<ul>" .. table.concat(inner, "\n") .. "</ul>"
      end
      out[#out + 1] = "</li>"
    end
    out[#out + 1] = "</ul>"
  end
  return table.concat(out, "\n") .. "\n"
end

-- site: dir, groups of pages, those below a page, titles, version.
function html.page(site, name, text)
  local body, contents = named(converted(text, site.dir), name)
  body = with_colours(body)
  body = body:gsub('(href="[%w_.-]+)%.md([#"])', "%1.html%2")
  body = body:gsub("<table>", '<div class="wide"><table>')
             :gsub("</table>", "</table></div>")
  local title = site.titles[name]
  local parts = {
    TITLE = html.escape(title == "flin" and title or title .. " - flin"),
    VERSION = site.version, BODY = body,
    NAV = navigation(site, name, contents),
  }
  return (TEMPLATE:gsub("@(%u+)@", parts))
end

-- ---- what is wrong with pages ----

local VOID = set "meta link br hr img input"

-- Tags that do not close, or close what is not open.
local function unbalanced(text)
  local open = {}
  text = text:gsub("<!.->", ""):gsub("<script>.-</script>", "")
  for close, tag, rest in text:gmatch "<(/?)(%w+)([^>]*)>" do
    if close == "/" then
      if open[#open] ~= tag then
        return ("</%s> closes <%s>"):format(tag, open[#open] or "nothing")
      end
      open[#open] = nil
    elseif not VOID[tag] and rest:sub(-1) ~= "/" then
      open[#open + 1] = tag
    end
  end
  return open[1] and ("<%s> is never closed"):format(open[#open])
end

local function is_there(dir, file)
  local f = io.open(dir .. "/" .. file)
  return f and f:close() or false
end

-- Links that lead nowhere, and tags that do not close, as lines of text.
-- pages: HTML by file name.
function html.faults(pages, dir)
  local ids, found = {}, {}
  for file, text in pairs(pages) do
    ids[file] = {}
    for id in text:gmatch ' id="([^"]*)"' do
      if ids[file][id] then
        found[#found + 1] = ("%s: two things are called '%s'"):format(file, id)
      end
      ids[file][id] = true
    end
  end
  for file, text in pairs(pages) do
    local fault = unbalanced(text)
    found[#found + 1] = fault and file .. ": " .. fault or nil
    for kind, link in text:gmatch ' (%l+)="([^"]*)"' do
      local to, id = link:match "^([^#]*)#?(.*)$"
      to = to == "" and file or to
      local is_link = kind == "href" or kind == "src"
      if is_link and not link:find "^https://" and
         not (pages[to] and (id == "" or ids[to][id])
              or not pages[to] and is_there(dir, to)) then
        found[#found + 1] = ("%s: dead link %s"):format(file, link)
      end
    end
  end
  table.sort(found)
  return found
end

return html
