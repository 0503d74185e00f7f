-- flin: --sandbox --budget 1000000000 --memory 256
-- What a script in the sandbox has, has not, and cannot hurt itself with.
local passed, failed = 0, 0

local function expect(ok, what)
  if ok then
    passed = passed + 1
  else
    failed = failed + 1
    print("FAIL " .. what)
  end
end

local function refuses(message, f, ...)
  local ok, got = pcall(f, ...)
  expect(not ok and tostring(got):find(message, 1, true),
         "wanted '" .. message .. "', got " .. tostring(got))
end

-- ---- what is not there ----

for _, name in ipairs { "io", "os", "debug", "package", "load", "loadfile",
                        "dofile", "collectgarbage", "warn" } do
  expect(_G[name] == nil, name .. " is there")
end
expect(string.dump == nil, "string.dump is there")
expect(getmetatable("").__index == string, "strings have their methods")
refuses("a script in the sandbox can require \"flin\" alone", require, "os")
local flin = require "flin"
expect(require "flin" == flin, "require gives one table")
for name in pairs(flin) do
  expect(not name:find "^_", "flin." .. name .. " is for flin alone")
end
refuses("files are closed to a script in the sandbox", flin.load, "x.npy")
refuses("files are closed to a script in the sandbox", flin.save, "x.npy",
        flin.zeros(1))
refuses("cannot have __gc", setmetatable, {}, { __gc = function () end })
local late = setmetatable({}, {})
getmetatable(late).__gc = function () error "collected" end

-- ---- bounded work ----

refuses("a text of more than", string.rep, "", 1 << 60, "x")
refuses("a text of more than", string.rep, "x", 1 << 60)
refuses("could take too long", string.find, ("a"):rep(3000), ".-.-.-.-b")
refuses("could take too long", string.match, ("a"):rep(40),
        ("a?"):rep(40) .. ("a"):rep(40))
refuses("could take too long", string.gsub, ("a"):rep(3000), ".*.*.*b", "")
refuses("could take too long", string.gmatch, ("a"):rep(3000), ".*.*.*b")
refuses("could take too long", string.find, ("a"):rep(1 << 16),
        ("a"):rep(1 << 13) .. "b", 1, true)
refuses("a range of more than", table.move, {}, 1, 1 << 60, 2)
refuses("a range of more than", table.concat, {}, "", 1, 1 << 40)
refuses("a range of more than", table.unpack, {}, 1, 1 << 40)
local long = setmetatable({}, { __len = function () return 1 << 60 end })
refuses("a table that has a metatable", table.insert, long, 1, 1)
refuses("a table that has a metatable", table.remove, long, 1)
refuses("a table that has a metatable", table.sort, long)
refuses("not enough memory", function ()
  local s = ("x"):rep(1 << 20)
  while true do s = s .. s end
end)
refuses("no memory for a tensor", flin.zeros, 1 << 26)
refuses("stack overflow", function ()
  local function f() return 1 + f() end
  f()
end)

-- ---- what a script gives is read once, raw ----

local gla = flin.stdlib.simple_gla
local function arguments(more)
  local x = gla:random { B = 1, T = 4, K = 2, V = 2 }
  for name, value in pairs(more) do
    x[name] = value
  end
  return x
end
local asked = 0
local endless = setmetatable({}, {
  __len = function () return (1 << 61) - 1 end,
  __index = function (_, i) asked = asked + 1 return i end,
})
for _, method in ipairs { "forward", "reference", "prepare" } do
  refuses("must start with 0", gla[method], gla,
          arguments { cu_seqlens = endless })
end
refuses("must start with 0", gla.check, gla, { cu_seqlens = endless })
expect(asked == 0, "cu_seqlens runs no metamethod")
-- A list that changes between two readings.
local second = setmetatable({ T = 4, K = 2, V = 2 }, {
  __index = function (t, name)
    if name == "cu_seqlens" then
      asked = asked + 1
      return asked == 1 and { 0, 1 << 40, 4 } or { 0, 2, 4 }
    end
  end,
})
expect(gla:check(second).worst < 1e-4 and asked == 0,
       "options run no metamethod")
for _, key in ipairs { true, 1.5, 7 } do
  refuses("there is no state [", gla.forward, gla,
          arguments { initial_state = { [key] = flin.ones(1) } })
  refuses("there is no state [", gla.backward, gla,
          arguments { dstate = { [key] = flin.ones(1) } })
  for _, method in ipairs { "check", "random", "plan", "io", "compile" } do
    refuses("there is no option [", gla[method], gla, { [key] = 1 })
  end
end
-- The last reference to a tensor goes while the call reads its arguments.
local given = arguments { initial_state = { S = flin.ones(1, 2, 2, 2) } }
given.backend = setmetatable({}, { __tostring = function ()
  given.initial_state = nil
  for _ = 1, 100 do
    flin.zeros(1 << 16)
  end
  return "cpu"
end })
refuses("there is no backend", gla.forward, gla, given)

-- A mask's arguments are kept by the script, and what they belong to goes.
local symbols, numbers
flin.mask_report(function (i, j, p)
  symbols, numbers = symbols or p, p
  return p.g[j]
end)
for _ = 1, 50 do
  flin.mask_report(function () return 1 end)
  flin.zeros(1 << 16)
end
for _, p in ipairs { symbols, numbers } do
  refuses("has been traced already", function () return p.other end)
end
refuses("has been traced already", function () return symbols.g[1] end)

-- What a step is run on is kept, and meets axes of another length.
local kept_values, old_values, refused = {}, {}, true
local function keeper(size)
  old_values, kept_values = kept_values, {}
  return flin.variant {
    axes = { k = size }, input = { q = "t k", k = "t k", v = "t v" },
    state = { S = "k v" },
    step = function (x, s)
      for _, old in pairs(old_values) do
        for _, f in ipairs { flin.dot, flin.outer, flin.lt, flin.max } do
          refused = refused and not pcall(f, x.v, old)
        end
      end
      if #kept_values < 3 then
        kept_values[#kept_values + 1] = x.k
      end
      local S = s.S + flin.outer(x.k, x.v)
      return { S = S }, flin.dot(x.q, S)
    end,
  }
end
for _, size in ipairs { 2, 500, 2 } do
  keeper(size)
  expect(#kept_values > 0 and refused, "values of another step are refused")
end

-- ---- sizes are bounded, also those of views ----

local one = flin.ones(1)
for _, n in ipairs { (1 << 61) - 1, math.maxinteger, 1 << 45 } do
  refuses("is too large", one.expand, one, 1, n)
  refuses("is too large", flin.zeros, n)
  refuses("is too large", flin.zeros, 0, n)
  refuses("is too large", flin.zeros, n, 0, n)
end
refuses("is too large", flin.ones(1 << 22):expand(1, 1 << 22).expand,
        flin.ones(1 << 22):expand(1, 1 << 22), 1, 4)
local wide = flin.ones(1 << 16):windows(1, 1 << 15, 2)
refuses("is too large", wide.windows, wide, 1, 1 << 15, 3)
refuses("is too large", flin.zeros(0).reshape, flin.zeros(0), 0, 1 << 62,
        1 << 62)
refuses("do not fill", one.reshape, one, 1 << 32, 1 << 32)
refuses("a size is a whole number", one.reshape, one, -1, -1)
local huge = one:expand(1, 1 << 40)
for _, name in ipairs { "norm", "argmax", "logsumexp", "unit" } do
  refuses("not enough memory", huge[name], huge:transpose(1, 2))
end
refuses("not enough memory", huge.sum_over, huge:transpose(1, 2):expand(1, 1),
        1)
for _, name in ipairs { "clone", "contiguous" } do
  refuses("no memory for a tensor", huge[name], huge)
end
local sizes = { -1, 4 }
expect(flin.ones(8):reshape(sizes).shape[1] == 2 and sizes[1] == -1,
       "reshape leaves its table as it is")

-- ---- what is compiled counts as memory ----

local function small_variant()
  return flin.variant {
    input = { q = "t k", k = "t k", v = "t v" }, state = { S = "k v" },
    step = function (x, s)
      local S = s.S + flin.outer(x.k, x.v)
      return { S = S }, flin.dot(x.q, S)
    end,
  }
end
refuses("out of memory: what has been compiled, and Lua", function ()
  local all = {}
  while true do
    all[#all + 1] = small_variant()
  end
end)
for _ = 1, 5000 do                      -- more than fit at a time
  small_variant()
end
refuses("prev is for a step", gla.map, gla, { q = flin.prev })

-- ---- ordinary work still works ----

expect(("a=1, b=2"):gsub("(%w+)=(%w+)", "%2=%1") == "1=a, 2=b", "gsub")
expect(("[x]"):match("[]%]]") == "]", "a set that starts with ]")
expect(("%d"):find("%", 1, true) == 1, "plain find")
local words = {}
for w in ("one two three"):gmatch("%a+") do
  table.insert(words, 1, w)
end
expect(table.concat(words, " ") == "three two one", "gmatch, insert, concat")
table.sort(words)
expect(table.remove(words, 1) == "one" and #words == 2, "sort, remove")
expect(select("#", table.unpack({ 1, 2, 3 }, 2)) == 2, "unpack")
expect(table.move({ 1, 2 }, 1, 2, 2)[3] == 2, "move")
expect(select(2, pcall(error, "x")) == "x", "pcall gives the error")
expect(select(2, xpcall(error, function (m) return m .. "!" end, "x"))
       == "x!", "xpcall runs the handler")
expect(select(3, xpcall(function (...) return ... end, print, 1, 2)) == 2,
       "xpcall passes arguments and results")
local co = coroutine.wrap(function (a)
  local ok, b = pcall(coroutine.yield, a + 1)
  return b * 2
end)
expect(co(1) == 2 and co(21) == 42, "yield across pcall")
refuses("bad argument #1 to 'rep'", function () string.rep({}, 1) end)

-- What is written in Lua works within the sandbox's bounds, too.
for _, method in ipairs { "dag", "graph", "io", "plan", "mask" } do
  local ok, got = pcall(gla[method], gla, method ~= "dag" and { K = 4, V = 4 }
                        or nil)
  expect(ok, method .. ": " .. tostring(got))
end
expect(#flin.luacats() > 1000 and #flin.help() > 1000, "help and luacats")

print(("%d passed, %d failed"):format(passed, failed))
