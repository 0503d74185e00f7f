-- commands.lua -- the prompt's commands. Each is a function, too: `:plan v
-- K=128` is print(flin.commands.plan(v, { K = 128 })).
--
-- flin, the table of built-ins (commands are added to it); suggest(word, what,
-- names): help for a word that is none of them; term: colours, the kind of heat
-- map, columns(), rows(), page(text), graphics(); evaluate(text) -> results or
-- an error; stage(name): what the time from here on goes to; run_file(path) ->
-- what a script returns; inner: flin's own Lua.
local flin, rows, suggest, term, evaluate, stage, run_file, inner = ...
local io, os = io, os                   -- none in the sandbox

local commands = { latest = nil }
local own = {}                          -- their rows

local function is_variant(x)
  return type(x) == "userdata" and not flin.is_tensor(x) and x.inputs ~= nil
end

-- ---- the functions ----

local run = {}

-- The greatest entry of each block of n x n.
local function blocks(rows, n)
  local out = {}
  for i, row in ipairs(rows) do
    local to = out[(i - 1) // n + 1] or {}
    out[(i - 1) // n + 1] = to
    for j, x in ipairs(row) do
      local at = (j - 1) // n + 1
      to[at] = math.max(to[at] or 0, x)
    end
  end
  return out
end

function run.mask(v, options)
  local m = v:mask(options)
  local scale, T, width = m:maxabs(), m.shape[1], term.columns()
  local map = m:map(function (x) return math.abs(x) / scale end):totable()
  local wide = term.colours == "ascii" and 2 or 1
  local n = width and math.max(1, -(-T * wide // width)) or 1
  return ("%s\n%s: weight of token j (across) in result i (down); the greatest "
          .. "is %.3g%s"):format(flin.heat_map(blocks(map, n), term.colours),
                                 v.name, scale, n > 1 and
                                 ("; a cell is the greatest of %d x %d")
                                 :format(n, n) or "")
end

function run.dag(v)
  return v:dag()
end

function run.plan(v, options)
  return v:plan(options)
end

function run.src(v, options)
  return v:source("cuda", options)
end

local function disassemble(cubin)
  local name = os.tmpname()
  local f <close> = assert(io.open(name, "wb"))
  f:write(cubin)
  f:close()
  for _, tool in ipairs { "nvdisasm -c", "cuobjdump -sass" } do
    local p = io.popen(("%s '%s' 2>/dev/null"):format(tool, name))
    local text = p:read "a"
    if p:close() and #text > 0 then
      os.remove(name)
      return (text:gsub("\n+$", ""))
    end
  end
  os.remove(name)
  error("sass: no disassembler: neither nvdisasm nor cuobjdump could read the "
        .. "kernel\n  help: they come with the CUDA toolkit, or by pip as "
        .. "nvidia-cuda-nvdisasm; is their bin in PATH?", 0)
end

function run.sass(v, options)
  if not io then
    error("sass: the sandbox starts no other programs", 0)
  end
  local text = {}
  for i, cubin in ipairs(v:compile(options).cubins) do
    text[i] = disassemble(cubin)
  end
  return table.concat(text, "\n")
end

function run.check(v, options)
  local r = v:check(options)
  return ("%s: relative RMS errors against the float64 step\n%s")
         :format(v.name, (tostring(r):gsub("\n$", "")))
end

function run.grad(v, options)
  return v:gradcheck(options)
end

function run.bench(v, options)
  return v:bench(options)
end

function run.io(v, options)
  return (tostring(v:io(options)):gsub("\n$", ""))
end

-- ---- pictures ----

local PICTURES <const> = { "mask", "plan", "dag", "roofline" }
local DRAWING <const> = { theme = true, title = true, width = true,
                          height = true }

local function is_picture(name)
  for _, known in ipairs(PICTURES) do
    if known == name then
      return true
    end
  end
end

local function merged(options, more)
  local t = {}
  for name, x in pairs(options or {}) do t[name] = x end
  for name, x in pairs(more) do t[name] = x end
  return t
end

local function roofline(v, options)
  local drawing, measured = {}, {}
  for name, x in pairs(options or {}) do
    (DRAWING[name] and drawing or measured)[name] = x
  end
  return flin.picture.roofline(v:bench(measured), drawing)
end

-- The same graph, laid out by Graphviz.
local function graphviz(dot)
  local name = os.tmpname()
  local f = assert(io.open(name, "w"))
  f:write(dot)
  f:close()
  local p = io.popen(("dot -Tsvg '%s' 2>/dev/null"):format(name))
  local text = p:read "a"
  p:close()
  os.remove(name)
  if #text == 0 then
    error("layout=graphviz: there is no program 'dot'\n  help: apt install "
          .. "graphviz; without layout, flin's own is drawn", 0)
  end
  return text
end

-- The SVG of a variant's mask, plan, dag or roofline.
local function picture(what, v, options)
  local layout = options and options.layout
  if not is_picture(what) then
    error(("there is no picture '%s'\n  help: %s"):format(tostring(what),
          suggest(tostring(what), "pictures", PICTURES)), 0)
  elseif layout and (what == "plan" or what == "dag") and io then
    local rest = merged(options, { format = "dot" })
    rest.layout = nil
    return graphviz(v[what](v, rest))
  elseif what == "roofline" then
    return roofline(v, options)
  end
  return v[what](v, merged(options, { format = "svg" }))
end

function run.show(what, v, options)
  local how = term.graphics()
  if not how then
    error("show: this terminal takes no pictures, neither kitty's nor sixel\n"
          .. "  help: :save x.svg, or :mask, :plan, :dag as text", 0)
  elseif not inner.raster then
    error("show: the sandbox draws no pixels", 0)
  end
  local theme = options and options.theme or "dark"
  local svg = type(what) == "string" and what:find "^<svg" and what
              or picture(what, v, merged(options, { theme = theme }))
  return inner.raster[how](svg, how == "kitty" and 1.5 or 1)
end

local DRAWN <const> = { svg = true, png = true, dot = true }

-- path: its ending says what is saved, of a variant or (.npy, .safetensors)
-- of tensors. what: of drawings, which.
function run.save(path, x, options, what)
  local ending = path:match "%.(%w+)$"
  local text
  if ending == "npy" or ending == "safetensors" then
    text = x
  elseif DRAWN[ending] and type(x) == "string" then
    text = x
  elseif ending == "dot" then
    text = x[what or "plan"](x, merged(options, { format = "dot" }))
  elseif DRAWN[ending] then
    text = picture(what or "plan", x, options)
  elseif ending == "cu" then
    text = x:source("cuda", options)
  else
    error(("save: what a file '%s' should hold is not known\n  help: a name in"
           .. " .svg, .png or .dot (a drawing), .cu (its source), .npy or "
           .. ".safetensors (tensors)"):format(path), 0)
  end
  if not io then
    error("save: the sandbox writes no files", 0)
  end
  local ok, why = pcall(flin.save, path, text)
  if not ok then
    error("save: " .. why:gsub("^[%w:.]-:%d+: ", ""):gsub("^save: ", ""), 0)
  end
  return "saved " .. path
end

local keys <const> = [[

Lua as it is; expressions show themselves, _ is the last result.
Tab completes, Up finds what begins so, Ctrl-R searches, Alt-Enter breaks the
line, Ctrl-C stops what runs, Ctrl-D leaves.
?name says more: ?dot, ?v:forward, ?:mask. flin.help() lists all there is.]]

-- Of no name: the commands and the keys.
function run.help(name)
  if name then
    return (flin.help(name):gsub("\n$", ""))
  end
  local lines = {}
  for i, row in ipairs(own) do
    lines[i] = ("%-26s %s"):format(row.name .. " " .. row.usage, row.brief)
  end
  return table.concat(lines, "\n") .. "\n" .. keys
end

-- ---- their lines ----

-- "a=1 b=x" at the end of the text as the text of a table; nil: none. A word
-- that is no global stands for itself.
local function split_options(text)
  local at = (" " .. text):find "%s[%a_][%w_]*=[^=]"
  if not at then
    return text, nil
  end
  local fields = {}
  for name, value in text:sub(at):gmatch "([%a_][%w_]*)=(%S+)" do
    if value:find "^[%a_][%w_]*$" and value ~= "true" and value ~= "false"
       and _G[value] == nil then
      value = '"' .. value .. '"'
    end
    fields[#fields + 1] = name .. " = " .. value
  end
  return text:sub(1, at - 1), "{ " .. table.concat(fields, ", ") .. " }"
end

local function trim(text)
  return text:match "^%s*(.-)%s*$"
end

-- The variant that a command without one is about.
local function usual_variant(what)
  if is_variant(commands.latest) then
    return commands.latest
  end
  local names, found = {}, nil
  for name, x in pairs(_G) do
    if is_variant(x) then
      names[#names + 1], found = name, x
    end
  end
  if #names == 1 then
    return found
  end
  table.sort(names)
  error(("%s: which variant?\n  help: :%s %s"):format(what, what, #names > 1
        and table.concat(names, ", or ") or "flin.stdlib.gated_deltanet"), 0)
end

local function variant_of(what, text)
  text = trim(text)
  if text == "" then
    return usual_variant(what)
  end
  local v
  if _G[text] == nil and text:find "^[%w_]+$" then
    for _, name in ipairs(flin.stdlib_names) do
      v = v or (name == text and flin.stdlib[name]) or nil
    end
  end
  v = v or evaluate(text)
  if not is_variant(v) then
    error(("%s: %s is not a variant"):format(what, text), 0)
  end
  commands.latest = v
  return v
end

-- f(...), whose errors name no line of this file: nobody has it.
local function unplaced(f, ...)
  local results = table.pack(pcall(f, ...))
  if results[1] then
    return table.unpack(results, 2, results.n)
  end
  local why = results[2]
  error(type(why) == "string" and why:gsub("^flin:%w+:%d+: ", "") or why, 0)
end

local function of_variant(name)
  return function (text)
    local rest, options = split_options(text)
    rest = name == "src" and rest:gsub("^cuda%f[%W]", "") or rest
    return unplaced(run[name], variant_of(name, rest),
                    options and evaluate(options))
  end
end

-- "mask gdn" as the picture and the rest; nil where none is named.
local function split_picture(text)
  local word, rest = text:match "^%s*(%a+)%f[^%w_]%s*(.*)$"
  if word and is_picture(word) and not is_variant(_G[word]) then
    return word, rest
  end
  return nil, text
end

local function save_line(text)
  local path, rest = text:match "^(%S+)%s*(.*)$"
  if not path then
    error("save: a file is wanted\n  help: :save plan.svg gdn K=128, :save "
          .. "mask.png mask gdn log=true", 0)
  end
  local named, options = split_options(rest)
  local what
  options = options and evaluate(options)
  if path:find "%.npy$" or path:find "%.safetensors$" then
    return run.save(path, evaluate(trim(named) == "" and "_" or named))
  elseif trim(named) == "" and not options and type(_G._) == "string"
         and _G._:find "^<svg" then
    return run.save(path, _G._)
  end
  what, named = split_picture(named)
  return unplaced(run.save, path, variant_of("save", named), options, what)
end

local function show_line(text)
  local named, options = split_options(text)
  local what
  options = options and evaluate(options)
  if trim(named) == "" and not options and type(_G._) == "string"
     and _G._:find "^<svg" then
    return io.write(run.show(_G._), "\n") and nil
  end
  what, named = split_picture(named)
  io.write(unplaced(run.show, what or "plan", variant_of("show", named),
                    options), "\n")
end

-- ---- scripts ----

local latest_file                       -- :reload's
local brought = {}                      -- by path: modules that it required

-- A variant gets its own name, or another, as a global; a table's each.
local function bind(value, name)
  if is_variant(value) then
    name = name or value.name
    if name:find "^[%a_][%w_]*$" and (_G[name] == nil
                                      or is_variant(_G[name])) then
      _G[name] = value
      return { name }
    end
  elseif type(value) == "table" and not getmetatable(value) then
    local names = {}
    for key, x in pairs(value) do
      for _, bound in ipairs(bind(x, type(key) == "string" and key) or {}) do
        names[#names + 1] = bound
      end
    end
    table.sort(names)
    return names
  end
  return {}
end

-- What a script returned is `_`, and has names.
local function keep(value, path)
  latest_file = path
  if value == nil then
    return path .. " returns nothing: end it with `return gdn`"
  end
  _G._ = value
  commands.saw(value)
  local names = bind(value)
  return #names > 0 and ("%s: %s"):format(path, table.concat(names, ", "))
         or path .. ": its result is _"
end

function run.load(path)
  if type(path) ~= "string" then
    error("load: a file is wanted\n  help: :load my_variant.lua", 0)
  elseif not io then
    error("load: the sandbox reads no files", 0)
  end
  local loaded, before = inner.loaded(), {}
  for _, name in ipairs(brought[path] or {}) do
    loaded[name] = nil                  -- they may be edited, too
  end
  for name in pairs(loaded) do
    before[name] = true
  end
  local value = run_file(path)
  brought[path] = {}
  for name in pairs(loaded) do
    if not before[name] then
      table.insert(brought[path], name)
    end
  end
  return value
end

local function load_line(text)
  local path = trim(text)
  print(keep(run.load(path ~= "" and path or nil), path))
end

local function reload_line(text)
  local path = trim(text) ~= "" and trim(text) or latest_file
  if not path then
    error("reload: nothing has been loaded yet\n  help: :load my_variant.lua",
          0)
  end
  print(keep(run.load(path), path))
end

local function time_line(text)
  local from = flin.clock()
  local x = evaluate(text)
  local spent = flin.clock() - from
  if x ~= nil then
    return x, ("%.3f ms"):format(spent * 1e3)
  end
  return ("%.3f ms"):format(spent * 1e3)
end

-- name, arguments, what it does, more; the line's function.
local function command(name, usage, brief, more, line)
  commands[#commands + 1] = { name = name, line = line }
  own[#own + 1] = { name = ":" .. name, usage = usage, brief = brief,
                    more = more }
  rows[#rows + 1] = own[#own]
end

local options = "\nOptions are words at the end: K=128 machine=h200. Without a "
                .. "variant, the latest one.\nAs a function: flin.commands."

local function on_variant(name, brief)
  command(name, "[v] [options]", brief,
          ("As v:%s.%s%s(v, { ... })"):format(name == "grad" and "gradcheck"
          or name == "src" and "source(\"cuda\")" or name == "sass"
          and "compile" or name, options, name), of_variant(name))
end

on_variant("mask", "the mask as a heat map")
on_variant("dag", "the step as assignments")
on_variant("plan", "kernels, and what each moves")
on_variant("src", "the plan as CUDA C++")
on_variant("sass", "its machine code")
on_variant("check", "errors against the float64 step")
on_variant("grad", "gradients against differences")
on_variant("bench", "times beside a token loop and the floor")
on_variant("io", "least words moved, and the plan's")
command("show", "[what] [v] [options]", "a picture in the terminal",
        "what: mask, plan, dag or roofline, of the plan if none is named; in a "
        .. "terminal that\ntakes kitty's pictures or sixel. After a line whose "
        .. "result is an SVG: that.\nAs a function: "
        .. "print(flin.commands.show(\"mask\", v, { log = true }))", show_line)
command("save", "file [what] [v] [options]",
        "writes a drawing, source or tensors",
        "By the file's ending: .svg, .png or .dot a drawing (mask, plan, dag, "
        .. "roofline; else\nthe plan), .cu its source, .npy or .safetensors "
        .. "tensors (the last result).\nlayout=graphviz has Graphviz lay a "
        .. "plan or a dag out. As a function:\n"
        .. "flin.commands.save(path, v, { ... }, \"mask\")", save_line)
command("load", "file", "runs a script; its variants get their names",
        "What it returns is _, and a variant that it returns has its name from "
        .. "now on.\nThe functions dofile(path) and flin.commands.load(path) "
        .. "return it.", load_line)
command("reload", "[file]", "the same again, after editing it",
        "Without a file, the one loaded last. What it requires is read again, "
        .. "too.", reload_line)
command("time", "expression", "how long it takes", nil, time_line)
command("help", "[name]", "what there is, or about a name; also ?name", nil,
        function (text)
  return commands.explain(trim(text))
end)

command("quit", "", "leaves, as Ctrl-D does", nil, function ()
  commands.quit = true
end)

-- ---- what is alive ----

-- What `?gdn`, `?gdn:forward` and `?t.shape` say where these are values of the
-- session; nil: they are none.
local function live_help(text)
  local path, sign, member = text:match "^([%a_][%w_.]*)([.:])([%a_][%w_]*)$"
  local value = _G
  for name in (path or text):gmatch "[^.]+" do
    value = type(value) == "table" and rawget(value, name) or nil
  end
  local kind = is_variant(value) and "v" or flin.is_tensor(value) and "t"
  if kind and path then
    for _, row in ipairs(rows) do
      if row.name == kind .. ":" .. member or row.name == kind .. "."
         .. member then
        return run.help(row.name)
      end
    end
    error(("%s is a %s, and has no %s\n  help: ?%s lists what it has"):format(
          path, kind == "v" and "variant" or "tensor", member, path), 0)
  elseif path or value == nil or not text:find "^[%a_][%w_.]*$" then
    return nil
  elseif kind then
    local lines = { kind == "v" and tostring(value:describe())
                    or tostring(value), "" }
    for _, row in ipairs(rows) do
      local own_sign, name = row.name:match("^" .. kind .. "([:.])([%w_]+)$")
      if name then
        lines[#lines + 1] = ("  %-22s %s"):format(text .. own_sign .. name,
                                                  row.brief)
      end
    end
    return table.concat(lines, "\n")
  elseif type(value) == "function" then
    for _, row in ipairs(rows) do
      local owner, name = row.name:match "^flin%.?([%w_.]-)%.?([%w_]+)$"
      local found = owner == "" and rawget(flin, name)
      if found == value then
        return run.help(row.name)
      end
    end
  end
end

function commands.explain(text)
  return text ~= "" and live_help(text) or run.help(text ~= "" and text or nil)
end

-- ---- what is typed ----

-- The names that a statement `local a, b = ...` or `local function f` makes.
local function local_names(statement)
  local f = statement:match "^%s*local%s+function%s+([%a_][%w_]*)"
  if f then
    return { f }
  end
  local list, names = statement:match "^%s*local%s+([^=\n]*)", {}
  for name in (list or ""):gsub("<[^>]*>", ""):gmatch "[%a_][%w_]*" do
    names[#names + 1] = name
  end
  return names
end

local lost = {}                         -- locals that ended with their entry

-- What to say of an entry that has run: its last statement made a local that
-- nothing can use, or it asked for a variable that is not there.
function commands.typed(text, none)
  local name = text:match "^%s*=?%s*([%a_][%w_]*)%s*$"
  if name and none and rawget(_G, name) == nil
     and name ~= "_" and name ~= "nil" then
    return "  help: " .. (inner.meant("attempt to index a nil value (global '"
           .. name .. "')") or "nothing is called so")
  end
  local field = text:match "^%s*=?%s*flin%.([%a_][%w_]*)%s*$"
  if field and none then
    local help = inner.meant("attempt to call a nil value (field '" .. field
                             .. "')")
    return help and "  help: " .. help
  end
  local last
  for line in (text .. "\n"):gmatch "(.-)\n" do
    if line:find "^%s?local%f[%W]" then
      last = line
      for _, made in ipairs(local_names(line)) do
        lost[made] = true
      end
    elseif line:find "^%a" and not line:find "^end%f[%W]" then
      last = nil
    end
  end
  local made = last and local_names(last) or {}
  for _, x in ipairs(made) do
    local _, uses = text:gsub("%f[%w_]" .. x .. "%f[^%w_]", "")
    if x == "flin" or uses > 1 and not last:find "^%s*local%s+function" then
      return nil
    end
  end
  if #made > 0 then
    return ("careful: %s ended with this entry, as locals do\n  help: %s")
           :format(table.concat(made, ", "), last:find "local%s+function"
           and "function " .. made[1] .. "(...) without local keeps it"
           or table.concat(made, ", ") .. " = ... without local keeps it")
  end
end

local meant = inner.meant
function inner.meant(message)
  local name = message:match "a nil value %(global '([%w_]+)'%)"
  if name and lost[name] then
    return ("the local %s ended with its entry: %s = ... without local keeps "
            .. "it"):format(name, name)
  end
  return meant(message)
end

-- ---- what the prompt calls ----

-- What the script before the prompt returned, and where it came from.
function commands.returned(results)
  local path = results.path
  if results[1] ~= nil then
    local said = keep(results[1], path)
    if term.rows() then
      print(said)
    end
  else
    latest_file = path
  end
end

-- A long text a page at a time, where there is a terminal.
local PAGED <const> = { src = true, sass = true, plan = true, dag = true }

local function paged(name, ...)
  if select("#", ...) == 0 then
    return
  end
  local text = ...
  local most = PAGED[name] and term.rows()
  local _, lines = tostring(text):gsub("\n", "")
  if most and lines >= most and term.page(tostring(text) .. "\n") then
    _G._ = text
    return
  end
  return ...
end

-- Results of the line ":name ..." or "?name".
-- A comment behind a command's words is none of them.
function commands.run(line)
  line = line:gsub("%s%-%-.*", "")
  local name, text = line:match "^:(%a*)%s*(.*)$"
  if not name then
    return commands.explain(trim(line:sub(2)))
  end
  for _, c in ipairs(commands) do
    if c.name == name then
      stage(line)
      return paged(name, c.line(text))
    end
  end
  local names = {}
  for i, c in ipairs(commands) do
    names[i] = ":" .. c.name
  end
  error(("there is no command :%s\n  help: %s"):format(name,
        suggest(":" .. name, "there are", names)), 0)
end

-- A result of a line: the latest variant is what commands are about.
function commands.saw(x)
  if is_variant(x) then
    commands.latest = x
  end
end

commands.functions = run
return commands
