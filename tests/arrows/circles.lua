-- circles.lua -- files that cannot be read one after another.
--   flin circles.lua [BUILD]
-- A file leads to those that define what it uses: functions and tables, as nm
-- tells of the objects. Where that comes back to it the files of the circle
-- are one, whatever their names say. There is none, but for these, which may
-- not grow: the largest circle of files of that name.
local allowed = {
  { files = "^lang/layer_", most = 2 },         -- a layer and its parts
  { files = "^lang/", most = 2 },               -- backward and saved
  { files = "^repl/", most = 3 },
}

local build = arg[1] or "build"
local folders = "compiler compiler/schedule lang backend/cpu backend/cuda repl"

local function quoted(s) return "'" .. s:gsub("'", "'\\''") .. "'" end

local function lines_of(command)
  local pipe, list = assert(io.popen(command)), {}
  for line in pipe:lines() do list[#list + 1] = line end
  assert(pipe:close(), command)
  return list
end

-- The sources that there are: an object may be left of one that is gone.
local names = {}
for folder in folders:gmatch "%S+" do
  for _, path in ipairs(lines_of("ls " .. folder .. "/*.c")) do
    names[#names + 1] = path:sub(1, -3)
  end
end

-- What each defines and uses.
local home, uses = {}, {}
do
  local objects = {}
  for i, name in ipairs(names) do
    objects[i] = quoted(build .. "/" .. name .. ".o")
  end
  local skip = #build + 2
  for _, line in ipairs(lines_of("nm -A " .. table.concat(objects, " "))) do
    local object, kind, symbol = line:match "^(.-%.o):%x* *(%a) (%S+)$"
    if object then
      local name = object:sub(skip, -3)
      if kind == "U" then
        uses[#uses + 1] = { name, symbol }
      elseif kind:match "[TDBRVWC]" then
        home[symbol] = home[symbol] or name
      end
    end
  end
end

-- leads[a][b]: what a uses of b; next: to whom, in order.
local leads, nexts = {}, {}
for _, name in ipairs(names) do leads[name], nexts[name] = {}, {} end
for _, use in ipairs(uses) do
  local a, b = use[1], home[use[2]]
  if b and b ~= a then
    if not leads[a][b] then table.insert(nexts[a], b) end
    leads[a][b] = leads[a][b] or use[2]
  end
end

-- Strongly connected components (Tarjan).
local circles, index, low, stack, on, count = {}, {}, {}, {}, {}, 0
local function visit(v)
  count = count + 1
  index[v], low[v], on[v] = count, count, true
  stack[#stack + 1] = v
  for _, w in ipairs(nexts[v]) do
    if not index[w] then
      visit(w)
      low[v] = math.min(low[v], low[w])
    elseif on[w] then
      low[v] = math.min(low[v], index[w])
    end
  end
  if low[v] ~= index[v] then return end
  local circle, w = {}, nil
  repeat
    w = table.remove(stack)
    on[w] = nil
    circle[#circle + 1] = w
  until w == v
  if #circle > 1 then
    table.sort(circle)
    circles[#circles + 1] = circle
  end
end
for _, name in ipairs(names) do
  if not index[name] then visit(name) end
end

-- The shortest way from a file of a circle back to it, with what is used.
local function way(from)
  local came, queue, at = {}, { from }, 1
  while queue[at] do
    local v = queue[at]
    at = at + 1
    for _, w in ipairs(nexts[v]) do
      if w == from then
        local text = ("%s of %s"):format(leads[v][w], w)
        while v ~= from do
          text = ("%s of %s, which uses %s"):format(leads[came[v]][v], v, text)
          v = came[v]
        end
        return ("%s uses %s"):format(from, text)
      end
      if not came[w] then
        came[w] = v
        queue[#queue + 1] = w
      end
    end
  end
end

local function allowance(circle)
  for _, a in ipairs(allowed) do
    local all = true
    for _, name in ipairs(circle) do all = all and name:match(a.files) end
    if all then return a end
  end
end

local wrong = 0
for _, circle in ipairs(circles) do
  local a = allowance(circle)
  if a then a.found = math.max(a.found or 0, #circle) end
  if not a or #circle > a.most then
    wrong = wrong + 1
    print(("a circle of %d files, where %s may be: %s"):format(#circle,
          a and a.most or "none", table.concat(circle, " ")))
    print("  " .. way(circle[1]))
  end
end
for _, a in ipairs(allowed) do
  if (a.found or 0) < a.most then
    wrong = wrong + 1
    print(("%s: the largest circle has %d files now, not %d: lower the number")
          :format(a.files, a.found or 0, a.most))
  end
end
os.exit(wrong == 0 and 0 or 1)
