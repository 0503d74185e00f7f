-- Pictures: each is XML that a browser reads, and shows what it should: all
-- bytes of a plan, whole labels, both signs of a mask, marks of its scale.
local flin = require "flin"
local passed, failed = 0, 0

local function check(name, ok, what)
  if ok then
    passed = passed + 1
  else
    failed = failed + 1
    print("FAIL " .. name .. (what and ": " .. tostring(what) or ""))
  end
end

-- What is wrong with the text as XML, or nil. Elements and text are counted.
local function xml_fault(text)
  local stack, i = {}, 1
  if not utf8.len(text) then
    return "no UTF-8"
  end
  while true do
    local at = text:find("<", i, true)
    local between = text:sub(i, (at or #text + 1) - 1)
    local rest = between:gsub("&%a+;", "")
    if rest:find "[&>]" then
      return "a bare & or > in: " .. between:sub(1, 60)
    elseif #stack == 0 and between:find "%S" then
      return "text outside: " .. between:sub(1, 60)
    end
    if not at then
      return #stack > 0 and "not closed: " .. stack[#stack] or nil
    end
    local stop = text:find(">", at, true)
    local tag = stop and text:sub(at + 1, stop - 1)
    if not tag then
      return "a tag without an end"
    end
    local closing, name, attributes, alone =
      tag:match "^(/?)(%a[%w]*)(.-)(/?)$"
    if not name then
      return "no tag: " .. tag
    elseif closing == "/" then
      if table.remove(stack) ~= name then
        return "closed, but not open: " .. name
      end
    else
      local seen, left = {}, attributes
      left = left:gsub('%s+([%w:_-]+)="([^"<]*)"', function (key, value)
        if seen[key] or value:gsub("&%a+;", ""):find "&" then
          return nil
        end
        seen[key] = true
        return ""
      end)
      if left:find "%S" then
        return "attributes: " .. attributes
      end
      stack[#stack + 1] = alone == "" and name or nil
    end
    i = stop + 1
  end
end

local function well_formed(name, text)
  local fault = xml_fault(text)
  check(name, not fault and text:find "^<svg " and text:find "</svg>\n$"
        and not text:find "[%s\"(,]%-?nan" and not text:find "%-?inf[%s\"]",
        fault)
end

local bad = { "<svg></g>", "<svg", "<svg a=1/>", "<svg>&</svg>", "<svg>",
              '<svg a="1" a="2"/>', "x<svg/>" }
for _, text in ipairs(bad) do
  check("the check itself: " .. text, xml_fault(text))
end

-- ---- the standard library ----

-- The texts of <text> elements.
local function texts_of(svg)
  local list = {}
  for text in svg:gmatch "<text[^>]*>([^<]*)</text>" do
    list[#list + 1] = text:gsub("&lt;", "<"):gsub("&gt;", ">")
                      :gsub("&quot;", '"'):gsub("&amp;", "&")
  end
  return table.concat(list, "\n")
end

local function grouped(x)
  local s = (x < 100 and x % 1 ~= 0 and "%.4g" or "%.0f"):format(x)
  repeat
    local n
    s, n = s:gsub("^(-?%d+)(%d%d%d)", "%1,%2")
  until n == 0
  return s
end

-- What is read and written adds up, and each tensor that is kept leaves one
-- kernel and comes into another, with its bytes.
local function plan_adds_up(name, v, options)
  local plan = v:plan(options)
  local picture = texts_of(v:plan { format = "svg", K = options.K,
    V = options.V, machine = options.machine, backward = options.backward })
  check(name .. ": labels are whole", not picture:find("...", 1, true))
  for i, k in ipairs(plan.kernels) do
    local read, written = 0, 0
    for _, t in ipairs(k.arguments) do
      read = read + t.bytes
      if t.from > 0 and t.from < i then
        local line = ("%s %s B, from kernel %d"):format(t.name,
                     grouped(t.bytes), t.from)
        check(name .. ": kept and read", picture:find(line, 1, true), line)
      end
    end
    for _, t in ipairs(k.results) do
      written = written + t.bytes
      check(name .. ": written", picture:find(("%s %s B"):format(t.name,
            grouped(t.bytes)), 1, true), t.name)
    end
    check(name .. ": bytes in", math.abs(read - k.reads) < 0.01)
    if not plan.note then
      check(name .. ": bytes out", math.abs(read + written - k.bytes) < 0.01,
            ("%g + %g of %g"):format(read, written, k.bytes))
    end
  end
end

local HAS_MASK <const> = { gated_deltanet = true, gla = true, retnet = true,
                           mamba2 = true, linear = true, rwkv6 = true }
for name, v in pairs(flin.stdlib) do
  well_formed(name .. ": plan", v:plan { format = "svg", K = 16, V = 16 })
  well_formed(name .. ": both ways", v:plan { format = "svg", K = 16, V = 16,
              backward = true, machine = "h200" })
  well_formed(name .. ": dag", v:dag { format = "svg" })
  plan_adds_up(name, v, { K = 16, V = 16, backward = true, machine = "h200" })
  if HAS_MASK[name] then
    well_formed(name .. ": mask", v:mask { format = "svg", T = 12 })
  end
end
local dag = texts_of(flin.stdlib.mamba3:dag { format = "svg" })
check("numbers are decimal", dag:find("3.14159", 1, true)
      and not dag:find("0x", 1, true))
local serial = flin.variant { name = "serial", input = { v = "t v" },
  state = { S = "v" }, step = function (x, s)
    local S = flin.tanh(s.S + x.v)
    return { S = S }, S
  end }
well_formed("token by token", serial:plan { format = "svg", V = 8 })
for _, format in ipairs { serial:plan { format = "dot", V = 8 },
                          flin.stdlib.gla:dag { format = "dot" },
                          flin.stdlib.kda:plan { format = "dot", K = 16, V = 16,
                            backward = true, machine = "h200" } } do
  check("dot", format:find "^digraph" and format:find "}\n$"
        and not format:find("...", 1, true))
end
check("bytes on Graphviz's edges", flin.stdlib.gla:plan { format = "dot",
      backward = true, machine = "h200", K = 16, V = 16 }
      :find "label=\"%d+ B\", style=bold")

-- ---- masks ----

local signed = flin.picture.mask { { 1, 0 }, { -0.5, 1e-9 } }
well_formed("a signed mask", signed)
check("two colours", signed:find 'class="w24 crisp"'
      and signed:find 'class="n%d+ crisp"')
check("too little for a sign", signed:find 'class="z crisp"')
local plain = flin.picture.mask { { 1, 0 }, { 0.5, 0.25 } }
check("one colour", plain:find 'class="p24 crisp"'
      and not plain:find 'class="n%d')
local function painted(svg)             -- boxes of the map
  local n = 0
  for d in svg:gmatch '<path d="([^"]*)" class="%a%d+ crisp"' do
    n = n + select(2, d:gsub("M", ""))
  end
  return n
end
check("zeros are bare", painted(plain) == 3, painted(plain))
local logs = texts_of(flin.picture.mask({ { 1, 0 }, { 1e-5, 1e-12 } },
                                        { log = true, decades = 6 }))
check("powers of ten", logs:find "10⁻³" and logs:find "≤ 10⁻⁶"
      and logs:find "logarithmic")
check("signs on a logarithmic scale", texts_of(flin.picture.mask(
      { { 1, 0 }, { -0.01, 1e-4 } }, { log = true })):find "−0.01")
check("what is not finite is said", texts_of(flin.picture.mask
      { { 0 / 0 } }):find "not finite")
well_formed("no numbers but 0", flin.picture.mask({ { 0 } }, { log = true }))
local big = {}
for i = 1, 300 do
  big[i] = {}
  for j = 1, 300 do
    big[i][j] = j <= i and 0.9 ^ (i - j) or 0
  end
end
local large = flin.picture.mask(big)
well_formed("300 tokens", large)
check("blocks of them", texts_of(large):find("of 2 × 2 the greatest", 1, true)
      and texts_of(large):find "\n256\n")
check("inputs of one's own", texts_of(flin.stdlib.gla:mask { format = "svg",
      T = 4, title = "a < b & c" }):find("a < b & c", 1, true))

-- ---- charts ----

local series = { { name = "<a>", points = { { 1, 5 }, { 2, 3 }, { 3, 2 } } },
                 { name = "b", points = { 4, 0 / 0, 1 } } }
local curves = flin.picture.curves(series, { title = "loss", x = "step",
                                   baselines = { { "order 0", 4.5 } } })
well_formed("curves", curves)
check("their last values", texts_of(curves):find("<a> 2", 1, true)
      and texts_of(curves):find("order 0 4.5", 1, true))
well_formed("on a logarithmic scale", flin.picture.curves(series,
            { log = true }))
local text = flin.picture.curves(series, { format = "text", columns = 60 })
check("as text", text:find "\n%s+a  <a> +2" and not text:find "\27")
for line in text:gmatch "[^\n]+" do
  check("as wide as asked", #line <= 60, line)
end
check("in colours", flin.picture.curves(series, { format = "text",
      colours = "256" }):find "\27%[34m")
local bars = flin.picture.bars({ { name = "gla", values = { 0.5, 1.5 } } },
                               { series = { "flin", "peer" }, unit = "ms" })
well_formed("bars", bars)
check("how many times", texts_of(bars):find("3.0×", 1, true))
local bench = flin.stdlib.gla:bench { T = 64, H = 1, K = 16, V = 16,
                                      seconds = 0 }
local roof = flin.picture.roofline(bench)
well_formed("roofline", roof)
check("its kernels", texts_of(roof):find "forward, chunks  %d+ %%, %d"
      and texts_of(roof):find "forward %+ backward: 2 backward  %d+ %%"
      and texts_of(roof):find "flop/s" and roof:find "moved, counted")
local made <const> = { name = "made", shape = "", gpu = "a GPU", copy = 1e12,
  peak = 1e15, rows = {}, kernels = { { call = "forward", kernel = 1,
  name = "forward", seconds = 1e-3, flops = 1e9, moved = 2e8, parts = {} } } }
check("how far below memory's roof", texts_of(flin.picture.roofline(made))
      :find "forward  20 %%, 1 ms")
made.kernels[1].flops = 1e12
check("how far below products'", texts_of(flin.picture.roofline(made))
      :find "forward  100 %%, 1 ms")
well_formed("of two", flin.picture.roofline { bench, bench })

-- ---- pages ----

local follow = flin.picture.mask { { 1 } }
local dark = flin.picture.mask({ { 1 } }, { theme = "dark" })
check("follows the page", follow:find "prefers%-color%-scheme:dark")
check("or is dark", not dark:find "prefers" and dark:find "#11151b")

-- ---- faults ----

local function refuses(name, wanted, f, ...)
  local ok, why = pcall(f, ...)
  check(name, not ok and tostring(why):find(wanted, 1, true), why)
end
refuses("an option", "there is no option 'lg'", flin.picture.mask, { { 1 } },
        { lg = true })
refuses("a theme", "help: auto, light, dark", flin.picture.mask, { { 1 } },
        { theme = "pink" })
refuses("rows", "as many rows of numbers", flin.picture.mask, { { 1, 2 } })
refuses("a variant", "a variant is wanted", flin.picture.plan, 7)
refuses("points", "series 1 has no points", flin.picture.curves, { {} })
refuses("a level", "baselines are", flin.picture.curves, series,
        { baselines = { 3 } })
refuses("bars", "row 1: 1 to 8 numbers", flin.picture.bars, { { values = {} } })
refuses("a bench", "what v:bench() returned", flin.picture.roofline, {})
refuses("a format", "formats: tensor, svg", flin.stdlib.gla.mask,
        flin.stdlib.gla, { format = "gif" })
refuses("a dag's format", "formats: text, svg, dot", flin.stdlib.gla.dag,
        flin.stdlib.gla, { format = "gif" })
refuses("a dag's option", "there is no option 'K'", flin.stdlib.gla.dag,
        flin.stdlib.gla, { K = 3 })

-- ---- files ----

local path = os.tmpname()
flin.save(path .. ".svg", signed)
local f <close> = assert(io.open(path .. ".svg", "rb"))
check("saved as it is", f:read "a" == signed)
os.remove(path .. ".svg")
local ok, why = pcall(flin.save, path .. ".png", signed)
if ok then
  local png <close> = assert(io.open(path .. ".png", "rb"))
  local bytes = png:read "a"
  check("a PNG", bytes:sub(1, 8) == "\137PNG\r\n\26\n")
  local w, h = (">I4I4"):unpack(bytes, 17)
  check("twice as large", w == 1260 and h == 1152, w .. " x " .. h)
  refuses("no drawing", "cannot be read", flin.save, path .. ".png", "<svg")
else
  check("a PNG, or why not", why:find "librsvg2%-2", why)
end
os.remove(path .. ".png")
os.remove(path)

print(("%d passed, %d failed"):format(passed, failed))
os.exit(failed == 0 and 0 or 1)
