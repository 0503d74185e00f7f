-- flin.probe: values inside of a step, looked at. Each file of the standard
-- library, with probes put into a copy of its step: what they give is held to
-- the float64 step, in chunks of any size, packed, decoded, with gradients;
-- and the variant itself is what it was. "cuda": the same on a driver of
-- tests, or a GPU, of the variants that are named.
local flin = require "flin"
local exp, dot, outer = flin.exp, flin.dot, flin.outer

local passed, failed = 0, 0
local function expect(name, good, more)
  if good then
    passed = passed + 1
  else
    failed = failed + 1
    print(("FAIL %s %s"):format(name, more or ""))
  end
end

local on_gpu = arg and arg[1] == "cuda"
local sizes = { K = 16, V = 8, size = 8, H = 2, T = 37 }

local function with(more)
  local o = {}
  for k, x in pairs(sizes) do
    o[k] = x
  end
  for k, x in pairs(more) do
    o[k] = x
  end
  return o
end

-- ---- the standard library ----

local function text_of(name)
  local f = assert(io.open("stdlib/" .. name .. ".lua"))
  local text = f:read "a"
  f:close()
  return text
end

-- What a key of the token reads from the state that the token finds; then the
-- step's local variables, but those that hold a whole state, unless `whole`.
local function probes_of(v, text, whole)
  local state, key, list = {}, nil, {}
  for _, s in ipairs(v.states) do
    state[s.name] = s.axes
  end
  for _, i in ipairs(v.inputs) do
    if i.axes == "t k" and not key then
      key = i.name
    end
  end
  for _, s in ipairs(v.states) do
    if s.axes == "k v" and key then
      list[#list + 1] = ('flin.probe("held_%s", flin.dot(x.%s, s.%s))')
        :format(s.name, key, s.name)
    end
  end
  local step = text:match "step  = function.*\n  end,"
  for names in step:gmatch "\n    local ([%w_, ]+) =" do
    for name in names:gmatch "[%w_]+" do
      local matrix = state[name] and state[name]:find " "
      if text:find(name .. ' = "%w+ : angle"') then
        name = ("flin.cos(%s)"):format(name)    -- itself is refused
      end
      if whole or not matrix then
        list[#list + 1] = ('flin.probe("%s_here", %s)'):format(
          name:match "[%w_]+%f[)%z]", name)
      end
    end
  end
  return list
end

local function probed(name, whole)
  local v, text = flin.stdlib[name], text_of(name)
  local list = probes_of(v, text, whole)
  text = text:gsub("\n    return {", "\n    " .. table.concat(list, "; "):gsub(
                   "%%", "%%%%") .. " return {")
  local path = os.tmpname()
  local f = assert(io.open(path, "w"))
  f:write(text)
  f:close()
  local w = dofile(path)
  os.remove(path)
  expect(name .. ": probes", #w.probes == #list and #list > 0, #w.probes)
  return v, w
end

-- The variant of the text is that of the file, to the last bit.
local function same_variant(name, v, w)
  expect(name .. ": its graph", v:graph() == w:graph())
  local o = { backward = true }
  for axis, size in pairs(v.axes) do
    if not size and axis ~= "p" then    -- p is half of k
      o[axis:upper()] = 64
    end
  end
  expect(name .. ": its kernels",
         v:source("cuda", o) == w:source("cuda", o))
  local x = v:random(sizes)
  local a, b = v:forward(x), w:forward(x)
  expect(name .. ": its bits", (a - b):maxabs() == 0)
end

local function close(name, got, want, limit)
  for key, t in pairs(want) do
    local worst, scale = (got[key]:to "cpu" - t):maxabs(), t:maxabs()
    expect(("%s: %s"):format(name, key), worst <= limit * (1 + scale), worst)
  end
end

local function hold(name, w)
  local p = w:probed()
  for _, o in ipairs { { chunk = 16 }, { T = 70, chunk = 32 },
                       { cu_seqlens = { 0, 5, 5, 37 } } } do
    local worst = p:check(with(o)).worst
    expect(name .. ": check", worst < 1e-4, worst)
  end
  local x = w:random(sizes)
  x.initial_state = {}
  for _, s in ipairs(p.states) do
    local z = { 2, 2 }
    for axis in s.axes:gmatch "[%w_]+" do
      z[#z + 1] = p.axes[axis] or sizes[axis:upper()] or sizes.size
    end
    if s.axes == "k v" then
      x.initial_state[s.name] = flin.randn(z)
    end
  end
  close(name, w:probe(x), p:reference(x), 1e-4)
end

local function on_device(name, w)
  local x, d = w:random(with { T = 40 }), {}
  for n, t in pairs(x) do
    d[n] = t:to "cuda"
  end
  close(name .. " cuda", w:probe(d), w:probed():reference(x), 1e-4)
end

local function print_counts()
  print(("%d passed, %d failed"):format(passed, failed))
end

if on_gpu then
  for i = 2, #arg do
    local _, w = probed(arg[i], false)
    on_device(arg[i], w)
  end
  print_counts()
  return
end

for _, name in ipairs(flin.stdlib_names) do
  local v, w = probed(name, false)
  same_variant(name, v, w)
  hold(name, w)
  if not v.note and not flin.stdlib[name].form:find "token by token" then
    expect(name .. ": in chunks", w:probed().form:find "runs in chunks",
           w:probed().form)
  end
end

-- ---- where probes may stand ----

-- A step of two results, a state of flin.prev, a constant of the head, a
-- function that is called twice, in turn with a probe behind v:map.
local function stepped(look)
  local function write(S, k, v, i)
    local e = look("err" .. i, v - dot(k, S))
    return S + outer(k, e)
  end
  return flin.variant {
    name = "looked_at",
    input = { q = "t k", k = "t k : unit_norm", v = "t v", a = "k",
              g = "t : log_decay" },
    state = { S = "k v" },
    step = function (x, s)
      local S = exp(x.g) * s.S
      S = write(write(S, x.k, x.v, 1), look("k0", flin.prev(x.k)), x.v, 2)
      look("twice", 2 * x.a)
      look("key", x.k)
      look("even", flin.where(flin.lt(x.g, -1), 1, 0))
      return { S = S }, { y = dot(x.q * x.a, S), loss = dot(x.v, x.v) }
    end,
  }
end
local w = stepped(flin.probe)
local v = stepped(function (_, x) return x end)
expect("as without", v:graph() == w:graph())
expect("names", table.concat(w.probes, " ") == "err1 k0 err2 twice key even",
       table.concat(w.probes, " "))
expect("none", #v.probes == 0)
hold("looked_at", w)
expect("states", #w:probed().states == 2
       and w:probed().states[2].name == "prev_k")
local x = w:random(sizes)
local r, left = w:probe(x, { chunk = 16 })
expect("the input itself", (r.key - x.k):maxabs() == 0)
expect("no tokens", (r.twice:narrow(2, 37, 1) - r.twice:narrow(2, 1, 1))
       :maxabs() == 0 and #r.twice.shape == 4)
expect("both results", r.loss and r.y)
local _, plain = w:forward(x)
expect("states that are left", (left.S - plain.S):maxabs() < 1e-5)

-- Token by token, from the state that the last one has left.
local now = nil
for t = 1, 5 do
  local one = { state = now }
  for name, tensor in pairs(x) do
    one[name] = name == "a" and tensor or tensor:narrow(2, t, 1)
  end
  local y
  y, now = w:probed():step(one)
  for _, name in ipairs { "err1", "err2", "k0" } do
    expect("decoded " .. name,
           (y[name] - r[name]:narrow(2, t, 1)):maxabs() < 1e-5)
  end
end

local function unit(k)
  return flin.l2norm(k) * 0.5
end
local mapped = w:map { k = unit }
hold("mapped", mapped)
expect("mapped: its key", (mapped:probe(x).key - w:probe(x).key * 0.5):maxabs()
       < 1e-5)
expect("once", mapped:probed() == mapped:probed())
local halved = flin.layer {
  name = "around", input = { x = "t h k", v = "t h v" }, weight = { W = "h" },
  forward = function (x, w)
    local look = flin.variant {
      name = "inner", input = { k = "t k", v = "t v" }, state = { S = "k v" },
      step = function (x, s)
        local e = flin.probe("err", x.v - dot(x.k, s.S))
        return { S = s.S + outer(x.k, e) }, e
      end
    }
    return w.W * look { k = flin.l2norm(x.x, "k"), v = x.v }
  end,
}
expect("in a layer", halved:check { T = 20, h = 2, k = 8, v = 8 }.worst < 1e-4)

-- ---- a state of each token ----

for _, name in ipairs { "gla", "kda", "mlstm", "retnet" } do
  local _, w = probed(name, true)       -- a state of each token: not in chunks
  local x = w:random(sizes)
  close(name .. ", whole", w:probe(x), w:probed():reference(x), 1e-4)
  expect(name .. ": why not", w:probed().note:find "every token would need")
end
print_counts()
