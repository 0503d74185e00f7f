-- commands.lua -- the prompt's commands. Each is a function, too: `:plan v
-- K=128` is print(flin.commands.plan(v, { K = 128 })).
--
-- flin, the table of built-ins (commands are added to it); suggest(word, what,
-- names): help for a word that is none of them; term: colours, the kind of heat
-- map, columns(); evaluate(text) -> results or an error; stage(name): what the
-- time from here on goes to.
local flin, rows, suggest, term, evaluate, stage = ...
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
  return disassemble(v:compile(options).cubin)
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

local SAVED <const> = { svg = "plan", dot = "plan", cu = "source" }

-- path: its ending says what is saved, of a variant or (.npy, .safetensors)
-- of tensors.
function run.save(path, x, options)
  local ending = path:match "%.(%w+)$"
  local text
  if ending == "npy" or ending == "safetensors" then
    flin.save(path, x)
    return "saved " .. path
  elseif SAVED[ending] == "plan" then
    local o = { format = ending }
    for name, value in pairs(options or {}) do
      o[name] = value
    end
    text = x:plan(o)
  elseif SAVED[ending] == "source" then
    text = x:source("cuda", options)
  else
    error(("save: what a file '%s' should hold is not known\n  help: a name in"
           .. " .svg or .dot (the plan), .cu (its source), .npy or "
           .. ".safetensors (tensors)"):format(path), 0)
  end
  if not io then
    error("save: the sandbox writes no files", 0)
  end
  local f <close>, why = io.open(path, "wb")
  if not f or not f:write(text) then
    error("save: " .. (why or path .. ": cannot be written"), 0)
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

local function of_variant(name)
  return function (text)
    local rest, options = split_options(text)
    rest = name == "src" and rest:gsub("^cuda%f[%W]", "") or rest
    return run[name](variant_of(name, rest), options and evaluate(options))
  end
end

local function save_line(text)
  local path, rest = text:match "^(%S+)%s*(.*)$"
  if not path then
    error("save: a file is wanted\n  help: :save plan.svg gdn K=128", 0)
  end
  local what, options = split_options(rest)
  options = options and evaluate(options)
  if path:find "%.npy$" or path:find "%.safetensors$" then
    return run.save(path, evaluate(trim(what) == "" and "_" or what))
  end
  return run.save(path, variant_of("save", what), options)
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
command("save", "file [v] [options]", "writes a drawing, source or tensors",
        "By the file's ending: .svg or .dot the plan, .cu its source, .npy or "
        .. ".safetensors tensors (the last result).\nAs a function: "
        .. "flin.commands.save(path, v, { ... })", save_line)
command("time", "expression", "how long it takes", nil, time_line)
command("help", "[name]", "what there is, or about a name; also ?name", nil,
        function (text)
  local name = trim(text)
  return run.help(name ~= "" and name or nil)
end)

-- ---- what the prompt calls ----

-- Results of the line ":name ..." or "?name".
function commands.run(line)
  local name, text = line:match "^:(%a*)%s*(.*)$"
  if not name then
    return run.help(trim(line:sub(2)) ~= "" and trim(line:sub(2)) or nil)
  end
  for _, c in ipairs(commands) do
    if c.name == name then
      stage(line)
      return c.line(text)
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
