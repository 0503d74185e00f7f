-- operations.lua -- in how many files a structured operation is a special case.
--   flin operations.lua [show]
-- A file counts that names it (OP_dot), and ops.def, whose row it is: what
-- everybody needs to know of it are columns there, and passes ask for what it
-- does (op_is). That leaves who makes it and an instruction for each backend;
-- six at most for a new one. Those that are named by more may not grow. The two
-- emitters that are to go (backend/cuda/emit_*, tile_*) count by themselves.
local most <const> = 6
local allowed = { scan = 8 }
local in_emitters = {
  dot = 15, cumsum = 10, gdot = 9, last = 8, rot90 = 8, delay = 7, scan = 7,
  solve = 7, cat = 6, col = 5, row = 5, sum = 5, dup = 4, maxscan = 4,
  select = 4, dmask = 3, relabel = 3, pairsum = 2, part = 2, unit = 2,
  count = 1, matscan = 1, ofrank = 1, later = 1,
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
                    or path:match "^backend/cuda/tile"
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
  hold(name, old[name], in_emitters[name] or 0, true, "of the two emitters")
end
for _, list in ipairs { allowed, in_emitters } do
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
    print(("%-8s %2d, and %d of the two emitters"):format(name, count[name],
          old[name]))
  end
  print(("median %g; with the two emitters %g"):format(
        median(function(name) return count[name] end),
        median(function(name) return count[name] + old[name] end)))
end
os.exit(not wrong)
