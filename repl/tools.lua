-- tools.lua -- what the program does with a script's variants: flin check,
-- bench, plan and new; --check, --compile-only and -d.
--
-- term: colours; evaluate(text) -> values; say(line); stage(name): what the
-- time from here on goes to.
local flin, term, evaluate, say, stage = ...
local io = io                           -- none in the sandbox

local tools = {}

-- What DESIGN.md asks of results, of gradients, of gates' gradients.
local LIMITS <const> = {
  float32 = { 1e-5, 1e-4, 1e-4 }, bfloat16 = { 4e-3, 8e-3, 2e-2 },
  float16 = { 1e-3, 4e-3, 1e-2 },
}
-- How much more coarsely these round than float32, of which half is certain.
local COARSER <const> = { bfloat16 = 2^15, float16 = 2^12 }
local SHORT <const> = { f32 = "float32", bf16 = "bfloat16", fp16 = "float16",
                        f16 = "float16" }

local function dtype_of(options)
  local dtype = options.dtype or "float32"
  return SHORT[dtype] or dtype
end

local function with(options, more)
  local o = {}
  for k, x in pairs(options) do o[k] = x end
  for k, x in pairs(more) do o[k] = x end
  return o
end

local function is_variant(x)
  return type(x) == "userdata" and not flin.is_tensor(x) and x.inputs ~= nil
end

-- ---- --check, --compile-only, -d ----

-- Where a variant amplifies what its inputs and results are rounded by (a
-- difference of two sums that are nearly the same, a norm of what is nearly 0),
-- 16 bits are off by more than usual: as far as float32 shows it on the CPU,
-- and no more than a tenth. Such rows have `alone`, what float32 is off by.
local function amplify(v, options, rows)
  local coarser, result = COARSER[dtype_of(options)], nil
  for _, row in ipairs(coarser and rows or {}) do
    if row.error > row.limit and row.error <= 0.1 then
      result = result or v:check(with(options, { dtype = "float32",
                                                 backend = "cpu" }))
      local most = math.min(0.1, coarser * (result[row.name] or 0))
      if row.error <= most then
        row.limit, row.alone = most, result[row.name]
      end
    end
  end
  return rows
end

-- The rows of what v:check returned: name, error, limit.
local function rows_of(v, result, options)
  local limits = LIMITS[dtype_of(options)] or LIMITS.float32
  local rows = {}
  local function add(name, limit)
    if result[name] then
      rows[#rows + 1] = { name = name, error = result[name], limit = limit }
    end
  end
  add("y", limits[1])
  add("state", limits[1])
  add("step", limits[1])
  for _, input in ipairs(v.inputs) do
    add("d_" .. input.name, input.axes == "t" and limits[3] or limits[2])
  end
  add("d_initial_state", limits[2])
  return amplify(v, options, rows)
end

-- What is said of a row that is within its limit for that alone; or nil.
local function amplified(row)
  return row.alone and ("%s: float32 is off by %.1e: the variant amplifies "
                        .. "what it is rounded by"):format(row.name, row.alone)
end

-- T=300,dtype=bfloat16: values as in Lua, but that words need no quotes.
local function read_sizes(sizes)
  local text = sizes:gsub("(=%s*)(%a[%w_]*)%s*%f[,%z]", function (is, word)
    if word ~= "true" and word ~= "false" and word ~= "nil" then
      return is .. '"' .. word .. '"'
    end
  end)
  return evaluate("{" .. text .. "}")
end

function tools.check_one(v, sizes)
  local options = read_sizes(sizes)
  stage "check"
  local result, good = v:check(options), true
  say(v.name .. ": relative RMS error against the float64 step")
  local rows = rows_of(v, result, options)
  for _, row in ipairs(rows) do
    local within = row.error <= row.limit
    say(("  %-16s %9.2e  %s %.0e"):format(row.name, row.error,
        within and "within" or "NOT within", row.limit))
    good = good and within
  end
  for _, row in ipairs(rows) do
    if row.alone then say("  careful: " .. amplified(row)) end
  end
  if result.trouble then
    say((good and "  careful: " or "  ") .. result.trouble)
  end
  return good
end

function tools.compile(v, sizes, arch)
  local options = read_sizes(sizes)
  options.arch = arch
  stage "compile"
  local r = v:compile(options)
  say(("%s, %s:"):format(v.name, r.arch))
  for _, name in ipairs { "kernels", "registers", "shared", "spills" } do
    say(("  %-10s %8d"):format(name, r[name]))
  end
  local bytes = 0
  for _, cubin in ipairs(r.cubins) do bytes = bytes + #cubin end
  say(("  %-10s %8d bytes"):format(#r.cubins == 1 and "cubin" or "cubins",
                                   bytes))
  say(("  %-10s %8.2f"):format("seconds", r.seconds))
  return true
end

function tools.dump(v, letters)
  say((v:dump(letters):gsub("\n$", "")))
  return true
end

-- ---- a script's variants ----

-- A file that something else loads and gives flin to, as the pieces of the
-- standard library are: whether it is one.
function tools.library(path, what)
  local f <close> = io and io.open(path)
  local text = f and f:read "a"
  if not text or not ("\n" .. text):find "\nlocal flin[%w_, ]* = %.%.%.%s" then
    return false
  end
  say(("%s is a library: what loads it gives it flin. It has no variant to %s; "
       .. "one that uses it has (flin %s stdlib/gla.lua)"):format(path, what,
                                                                 what))
  return true
end

-- Returned by a module: functions for others, and no variant that they make.
local function is_module(returned)
  if type(returned) ~= "table" or returned.variant ~= nil then
    return false
  end
  for _, value in pairs(returned) do
    if type(value) == "function" then return true end
  end
  return false
end

-- ", but a table with road (a string), variant (a function)".
local function found_instead(returned)
  if type(returned) ~= "table" then
    return returned ~= nil and ", but a " .. type(returned) or ""
  end
  local fields, most = {}, 6
  for name, value in pairs(returned) do
    fields[#fields + 1] = ("%s (a %s)"):format(name, type(value))
  end
  table.sort(fields)
  if #fields > most then
    fields[most] = "..."
  end
  return #fields == 0 and ", but an empty table"
         or ", but a table with "
            .. table.concat(fields, ", ", 1, math.min(#fields, most))
end

-- What the script returned: a variant, or a table of them.
local function variants_of(returned, what)
  local list = {}
  if is_variant(returned) then
    list[1] = returned
  elseif type(returned) == "table" then
    for _, v in pairs(returned) do
      if is_variant(v) then
        list[#list + 1] = v
      end
    end
    table.sort(list, function (a, b) return a.name < b.name end)
  end
  if #list == 0 and is_module(returned) then
    say(("a library, which has no variant to %s: it returns %s"):format(what,
        (found_instead(returned):gsub("^, but ", ""))))
  elseif #list == 0 then
    local makes = type(returned) == "table"
                  and type(returned.variant) == "function"
    error(("flin %s: the script returns no variant%s\n  help: %s"):format(
          what, found_instead(returned), makes
          and "variant is a function that makes one: return what it returns"
          or "end it with `return gdn`, or `return { gdn, gla }`"), 0)
  end
  return list
end

-- { "K=64", "machine=h200" } as a table; words that are no numbers or truth
-- values are strings.
local function options_of(words, what)
  local options = {}
  for _, word in ipairs(words) do
    local name, value = word:match "^([%a_][%w_]*)=(.+)$"
    if not name then
      error(("flin %s: '%s' is no option\n  help: options are NAME=VALUE: "
             .. "K=64"):format(what, word), 0)
    end
    if value == "true" or value == "false" then
      options[name] = value == "true"
    else
      options[name] = math.tointeger(tonumber(value)) or tonumber(value)
                      or value
    end
  end
  return options
end

-- ---- flin check ----

local BACKENDS <const> = { "interpreter", "cpu", "cuda" }

-- The backend that is asked for, or all.
local function backends_of(options)
  local asked = options.backend
  if asked == nil then return BACKENDS end
  for _, backend in ipairs(BACKENDS) do
    if backend == asked then return { backend } end
  end
  error(("flin check: there is no backend '%s'\n  help: backends: %s"):format(
        asked, table.concat(BACKENDS, ", ")), 0)
end

-- Why this backend cannot be asked, if that is what the error says.
local function absence(message)
  for _, sign in ipairs { "there is no backend", "no CUDA", "no GPU",
                          "libcuda", "NVRTC", "was not found",
                          "cannot print", "on the CPU so far" } do
    if message:find(sign, 1, true) then
      return (message:gsub("\n.*", ""):gsub("^[^%s]*:%d+: ", ""))
    end
  end
end

-- The worst row of some: against its own limit.
local function worst(rows, first, last)
  local found
  for i = first, last do
    local row = rows[i]
    if not found or row.error / row.limit > found.error / found.limit then
      found = row
    end
  end
  return found
end

-- said: an error that is the same on each backend is said once. One that is
-- not here fails where it was asked for by name.
local function check_backend(v, options, backend, said)
  stage(v.name .. " on " .. backend)
  local ok, result = pcall(v.check, v, with(options, { backend = backend }))
  if not ok then
    local text = tostring(result)
    local why = absence(text)
    local skips = why and options.backend == nil
    say(("  %-12s %s"):format(backend, skips and "skipped: " .. why
                              or said[text] and "FAILED: the same"
                              or "FAILED: " .. text))
    said[text] = true
    return skips
  end
  local rows = rows_of(v, result, options)
  local good = true
  for _, row in ipairs(rows) do
    good = good and row.error <= row.limit
  end
  local first = result.step and 4 or 3      -- all pairs have no step
  local grad = #rows >= first and worst(rows, first, #rows)
  say(("  %-12s %9.1e %9.1e %9s %9s %-16s %s"):format(backend,
      result.y, result.state,
      result.step and ("%.1e"):format(result.step) or "-",
      grad and ("%.1e"):format(grad.error) or "-", grad and grad.name or "",
      good and "ok" or "FAILED"))
  for _, row in ipairs(rows) do
    if not (row.error <= row.limit) then
      say(("    %s: %.2e, more than %.0e"):format(row.name, row.error,
                                                 row.limit))
    elseif row.alone then
      say("    careful: " .. amplified(row))
    end
  end
  if result.trouble then
    say((good and "    careful: " or "    ")
        .. result.trouble:gsub("\n", "\n  "))
  end
  return good
end

local function check_differences(v, options)
  if v.detaches then
    say(("  %-12s %s"):format("differences",
                              "skipped: they move what flin.detach detaches"))
    return true
  end
  stage(v.name .. ", differences")
  local H = options.H
  local o = { T = 20, B = options.B, chunk = options.chunk,
              seed = options.seed, H = math.type(H) and math.min(H, 8) or H }
  for axis, fixed in pairs(v.axes) do   -- a long one is as its use asks
    local size = options[axis] or options[axis:upper()]
    if fixed or not (math.type(size) and size > 8) then o[axis] = size end
  end
  local ok, r = pcall(v.gradcheck, v, o)
  if not ok then
    say("  differences  FAILED: " .. tostring(r))
    return false
  end
  local good = r.worst <= 1e-4
  say(("  %-12s %29s %9.1e %-16s %s"):format("differences", "", r.worst, "",
                                             good and "ok" or "FAILED"))
  local jumping = {}
  for _, row in ipairs(r.rows) do
    jumping[#jumping + 1] = row.jumps and row.name
  end
  if #jumping > 0 then
    say("    the step jumps along " .. table.concat(jumping, ", ")
        .. ": nothing to compare with")
  end
  if not good then
    local sizes = with({ B = 1, H = 1, size = 8 }, o)
    sizes.chunk = nil
    local inputs = with(v:random(sizes), { validate = "growth" })
    local fine, why = pcall(v.forward, v, inputs)
    if not fine then
      say("    " .. (why:match "forward: ([^\n]*)" or why))
    end
  end
  return good
end

local function check_variant(v, options)
  say(tostring(v))
  say(("  %-12s %9s %9s %9s %9s %s"):format("", "y", "state", "step",
                                           "gradient", "the worst is"))
  local good, said = true, {}
  for _, backend in ipairs(backends_of(options)) do
    good = check_backend(v, options, backend, said) and good
  end
  return check_differences(v, options) and good
end

function tools.check(returned, _, ...)
  local options = options_of({ ... }, "check")
  local good, n = 0, 0
  for _, v in ipairs(variants_of(returned, "check")) do
    n = n + 1
    good = good + (check_variant(v, options) and 1 or 0)
  end
  if n == 0 then return true end
  say(("%d of %d variants: ok"):format(good, n))
  return good == n
end

-- ---- flin bench, flin plan ----

local function each(what, returned, words, f)
  local options = options_of(words, what)
  for _, v in ipairs(variants_of(returned, what)) do
    stage(what .. " of " .. v.name)
    local ok, r = pcall(f, v, options)
    if not ok then      -- without a place of this file
      error((tostring(r):gsub("^flin:%w+:%d+: ", "")), 0)
    end
    say(tostring(r))
  end
  return true
end

function tools.bench(returned, _, ...)
  return each("bench", returned, { ... }, function (v, o) return v:bench(o) end)
end

function tools.plan(returned, _, ...)
  return each("plan", returned, { ... }, function (v, o) return v:plan(o) end)
end

-- ---- flin new ----

local STARTER <const> = [[
-- NAME: say in one line what this variant does.
--
--   flin NAME.lua          runs this file: what is below `return` is shown
--   flin check NAME.lua    the chunk form, all gradients, every backend
--   flin bench NAME.lua    beside a loop over the tokens
--   flin plan NAME.lua     the kernels it becomes
--   flin -i NAME.lua       and then the prompt; ?name explains a name
local flin = require "flin"
local exp, dot, outer = flin.exp, flin.dot, flin.outer

local NAME = flin.variant {
  name  = "NAME",
  -- Axes: t token, k key, v value, or your own. Behind the colon, what random
  -- tests draw: log_decay (<= 0), unit (0 to 1), unit_norm, positive, angle.
  input = { q = "t k", k = "t k : unit_norm", v = "t v",
            g = "t : log_decay", beta = "t : unit" },
  state = { S = "k v" },
  -- One token: the inputs x and the states s give the new states and y.
  step  = function (x, s)
    local S = exp(x.g) * s.S                            -- forget
    local error = x.v - dot(x.k, S)                     -- what S gets wrong
    S = S + outer(x.beta * x.k, error)                  -- write it
    return { S = S }, dot(x.q, S)
  end,
}

return NAME
]]

function tools.new(_, name, more)
  local path = name:match "^(.*)%.lua$" and name or name .. ".lua"
  local word = path:match "([^/]+)%.lua$"
  if not word or not word:find "^[%a_][%w_]*$" or #word > 60 then
    error(("flin new: '%s' is not usable as a name\n  help: letters, digits "
           .. "and _: flin new my_variant"):format(name), 0)
  elseif more then
    error(("flin new: one name is wanted, not '%s' as well"):format(more), 0)
  elseif not io then
    error("flin new: the sandbox writes no files", 0)
  end
  local there = io.open(path)
  if there then
    there:close()
    error(("flin new: %s is there already"):format(path), 0)
  end
  local f <close>, why = io.open(path, "w")
  if not f or not f:write((STARTER:gsub("NAME", word))) then
    error("flin new: " .. tostring(why), 0)
  end
  say(("%s: a gated delta rule to start from\n  flin check %s"):format(path,
                                                                      path))
  return true
end

return tools
