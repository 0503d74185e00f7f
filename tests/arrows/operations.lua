-- operations.lua -- in how many files a structured operation is a special case.
--   flin operations.lua [show]
-- A file counts that names it (OP_dot), and ops.def, whose row it is: what
-- everybody needs to know of it are columns there, and passes ask for what it
-- does (op_is). That leaves who makes it and an instruction for each backend;
-- six at most for a new one. Those that are named by more may not grow.
local most <const> = 6
local allowed = { scan = 8 }
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

local count, names = {}, {}
for name in read "compiler/ops.def":gmatch "\nOP%((%w+)," do
  if not leaf[name] then
    names[#names + 1] = name
    count[name] = 1
  end
end

for folder in folders:gmatch "%S+" do
  local pipe = assert(io.popen("ls " .. folder .. "/*.[ch]"))
  for path in pipe:lines() do
    local seen = {}
    for name in read(path):gmatch "%f[%w_]OP_(%w+)" do
      if count[name] and not seen[name] then
        seen[name] = true
        count[name] = count[name] + 1
      end
    end
  end
  assert(pipe:close(), folder)
end

local wrong = #names < 20
for _, name in ipairs(names) do
  local found, limit = count[name], allowed[name] or most
  if found > limit then
    wrong = true
    print(("%s is named by %d files, where %d may"):format(name, found, limit))
  elseif allowed[name] and found < limit then
    wrong = true
    print(("%s is named by %d files now, not %d: lower the number"):format(
          name, found, limit))
  end
end
for name in pairs(allowed) do
  if not count[name] then
    wrong = true
    print(name .. " is no operation")
  end
end

if arg[1] == "show" then
  local n = {}
  for i, name in ipairs(names) do
    n[i] = count[name]
    print(("%-8s %2d"):format(name, count[name]))
  end
  table.sort(n)
  print(("median %g"):format((n[(#n + 1) // 2] + n[#n // 2 + 1]) / 2))
end
os.exit(not wrong)
