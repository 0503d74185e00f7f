-- operations.lua -- in how many files a structured operation is a special case.
--   flin operations.lua [show]
-- A file counts that names it (OP_dot), and ops.def, whose row it is: what
-- everybody needs to know of it are columns there, and passes ask for what it
-- does (op_is). That leaves who makes it and an instruction for each backend;
-- six at most for a new one. Those that are named by more may not grow. The
-- emitter that is to go (backend/cuda/emit_*) counts by itself.
local most <const> = 6
local allowed = { scan = 8 }
local in_emitter = {
  dot = 9, rot90 = 5, cumsum = 5, last = 5, gdot = 5, cat = 5, scan = 4,
  delay = 4, dup = 3, select = 3, sum = 2, relabel = 2, col = 2, row = 2,
  dmask = 2, solve = 2, unit = 1, part = 1, maxscan = 1,
}

local folders <const> = "compiler compiler/schedule lang backend/cpu " ..
                        "backend/cuda repl"
-- Leaves: each kind is a case of its own to whoever walks a graph.
local leaf <const> = { none = true, num = true, input = true, state = true,
                       size = true }

local function read(path)
  local f = assert(io.open(path))
  local text = f:read "a"
  f:close()
  return text
end

local count, old, names = {}, {}, {}
for name in read "compiler/ops.def":gmatch "\nOP%((%w+)," do
  if not leaf[name] then
    names[#names + 1] = name
    count[name], old[name] = 1, 0
  end
end

for folder in folders:gmatch "%S+" do
  local pipe = assert(io.popen("ls " .. folder .. "/*.[ch]"))
  for path in pipe:lines() do
    local emitter = path:match "^backend/cuda/emit"
    local to, seen = emitter and old or count, {}
    for name in read(path):gmatch "%f[%w_]OP_(%w+)" do
      if to[name] and not seen[name] then
        seen[name] = true
        to[name] = to[name] + 1
      end
    end
  end
  assert(pipe:close(), folder)
end

local wrong = #names < 20
local function hold(name, found, limit, exact, where)
  if found > limit then
    wrong = true
    print(("%s is named by %d %s, where %d may"):format(name, found, where,
          limit))
  elseif exact and found < limit then
    wrong = true
    print(("%s is named by %d %s now, not %d: lower the number"):format(name,
          found, where, limit))
  end
end
for _, name in ipairs(names) do
  hold(name, count[name], allowed[name] or most, allowed[name], "files")
  hold(name, old[name], in_emitter[name] or 0, true, "of the emitter")
end
for _, list in ipairs { allowed, in_emitter } do
  for name in pairs(list) do
    if not count[name] then
      wrong = true
      print(name .. " is no operation")
    end
  end
end

if arg[1] == "show" then
  local function median(of)
    local n = {}
    for i, name in ipairs(names) do n[i] = of(name) end
    table.sort(n)
    return (n[(#n + 1) // 2] + n[#n // 2 + 1]) / 2
  end
  for _, name in ipairs(names) do
    print(("%-8s %2d, and %d of the emitter"):format(name, count[name],
          old[name]))
  end
  print(("median %g; with the emitter %g"):format(
        median(function(name) return count[name] end),
        median(function(name) return count[name] + old[name] end)))
end
os.exit(not wrong)
