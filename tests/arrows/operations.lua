-- operations.lua -- in how many files a structured operation is a special case.
--   flin operations.lua
-- A file counts that names it (OP_dot), and ops.def, whose row it is: what
-- everybody needs to know of it are columns there. That leaves who makes it,
-- its value, and an instruction for each backend; six at most for a new one.
-- These are named by more, as patterns that passes look for; they may not grow.
local most <const> = 6
local allowed = {
  dot = 40, cumsum = 27, last = 27, delay = 26, gdot = 25, dup = 24, scan = 24,
  rot90 = 22, sum = 20, solve = 19, col = 17, row = 17, select = 15,
  pairsum = 15, dmask = 14, cat = 13, relabel = 13, maxscan = 13, unit = 11,
  count = 11, ofrank = 8, part = 7, matscan = 7,
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
  local limit = allowed[name] or most
  if count[name] > limit then
    wrong = true
    print(("%s is named by %d files, where %d may"):format(name, count[name],
          limit))
  elseif allowed[name] and count[name] < limit then
    wrong = true
    print(("%s is named by %d files now, not %d: lower the number"):format(
          name, count[name], limit))
  end
end
for name in pairs(allowed) do
  if not count[name] then
    wrong = true
    print(name .. " is no operation")
  end
end
os.exit(not wrong)
