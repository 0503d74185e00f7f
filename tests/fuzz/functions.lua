-- Calls of all functions that there are, one after another, with arguments that
-- nobody meant: wrong types, sizes without end, tables that answer otherwise
-- each time, tensors of odd shapes, values of traces under way and over.
--
-- debug: Lua's library, by which the functions are found; pick(n): a number
-- from 1 to n; tick(name): a call begins; say: tell of each, or nil. Returns
-- the function that makes so many calls.
local debug, pick, tick, say = ...
local flin = require "flin"

-- Of what a call may replace in the library's tables.
local pcall, type, tostring, setmetatable, getmetatable, select, pairs, next,
      error = pcall, type, tostring, setmetatable, getmetatable, select, pairs,
              next, error
local rep, find, match, format = string.rep, string.find, string.match,
                                 string.format
local unpack, concat, pack = table.unpack, table.concat, table.pack
local create, wrap, yield = coroutine.create, coroutine.wrap, coroutine.yield
local randn, is_tensor, variant = flin.randn, flin.is_tensor, flin.variant
local rawget = rawget

-- ---- the functions ----

local functions = {}                    -- { name, function }

-- Left out: destructors, which no script can reach, of what is alive; what
-- measures for seconds.
local function is_left_out(name)
  return find(name, "__gc$") and not find(name, "^flin%.game")
         or find(name, "copy_rate")
end

local walk

-- A C function's upvalues are its own business (the sandbox's hold what it
-- wraps), but for tables of methods.
local function walk_upvalues(f, name)
  local is_c = debug.getinfo(f, "S").what == "C"
  for i = 1, 255 do
    local up, x = debug.getupvalue(f, i)
    if not up then
      return
    elseif not is_c or type(x) == "table" then
      walk(x, name)
    end
  end
end

local function walk_fields(t, name)
  local keys = {}
  for key in next, t do
    keys[#keys + 1] = type(key) == "string" and key or nil
  end
  table.sort(keys)
  for _, key in pairs(keys) do
    walk(rawget(t, key), name == "" and key or name .. "." .. key)
  end
end

-- All that can be reached from x, in the order of names.
local seen = {}
function walk(x, name)
  local kind = type(x)
  if seen[x] or (kind ~= "table" and kind ~= "function"
                 and kind ~= "userdata") then
    return
  end
  seen[x] = true
  if kind == "table" then
    walk_fields(x, name)
  elseif kind == "function" then
    walk_upvalues(x, name)
    if not is_left_out(name) then
      functions[#functions + 1] = { name, x }
    end
  end
  walk(debug.getmetatable(x), name)
end

walk(debug.getregistry(), "")
walk(debug.getmetatable(""), "string")
debug = nil

local function one_of(list) return list[pick(#list)] end
local function chance(n) return pick(n) == 1 end

-- ---- arguments ----

local NUMBERS <const> = { 0, 1, 1, 2, 2, 3, 4, -1, 7, 16, 64, 100, 0.5, -0.0,
  1e308, -1e308, 1 / 0, -1 / 0, 0 / 0, 1 << 16, 1 << 20, (1 << 31) - 1,
  1 << 31, 1 << 32, 1 << 40, 1 << 46, (1 << 61) - 1, 1 << 62, math.maxinteger,
  math.mininteger, 2^53, 2^63 }

local WORDS <const> = { "", "a", "S", "q", "k", "v", "g", "t", "t k", "t v",
  "k v", "t : log_decay", "t k : unit_norm", "k k", "t t", ":", "cpu", "cuda",
  "h200", "float32", "bf16", "float64", "none", "a b", "ab", "rms", "l2", "exp",
  "sigmoid", "T", "TCGP", "X", "12", "1e5", "0x10", " 3 ", "nan", "%", "%d",
  "%s%s", "%b", "[", "(", ".-.-b", "%f[%a]", "\0", "\27[2J", "\xff\xfe",
  "prev_k", "y", "sm_90a", "sm_80", "dot", "svg", "quadratic", "blocks",
  "tiles", "initial_state", rep("a", 20), rep("a", 21), rep("x", 300),
  rep("ab ", 2000), rep("(", 300), "init", "gla", "__index", "__gc", "<4i4" }

local KEYS <const> = { "q", "k", "v", "g", "w", "beta", "a", "b", "S", "B", "T",
  "H", "HV", "K", "V", "R", "t", "n", "d", "initial_state", "state",
  "cu_seqlens", "chunk", "backend", "threads", "inplace", "save", "saved", "dy",
  "dstate", "dtype", "seed", "axes", "input", "step", "mask", "name", "mode",
  "words", "window", "way", "play", "machine", "cache", "format", "backward",
  "arch", "serial", "transpose", "into", "add", "rate", "beta1", "decay",
  "transition", "features", "scale", "per", "steps", "validate", "path",
  "Z_input", "Z_QK", "options", "poison", "gate", "output" }

local live = {}                         -- values of the trace under way
local kept = {}                         -- what calls have returned
local any, call                         -- defined below

local function keep(x)
  kept[#kept < 60 and #kept + 1 or pick(60)] = x
end

local function number() return one_of(NUMBERS) end
local function word() return one_of(WORDS) end
local function small() return pick(5) - 1 end

local DTYPES <const> = { "float32", "float32", "bfloat16", "float16",
                         "float64" }
local VIEWS <const> = {
  function (t) return t:expand(pick(t.rank + 1), number()) end,
  function (t) return t:expand(pick(t.rank + 1), small()) end,
  function (t) return t:transpose(pick(t.rank), pick(t.rank)) end,
  function (t)
    local k = pick(t.rank)
    return t:narrow(k, pick(t.shape[k] + 1), small())
  end,
  function (t) return t:windows(pick(t.rank), pick(3), t.rank + 1) end,
  function (t) return t:reshape(-1) end,
  function (t) return t[1] end,
}

local function tensor()
  if #kept > 0 and chance(2) then
    local t = one_of(kept)
    if is_tensor(t) then
      return t
    end
  end
  local shape = {}
  for i = 1, pick(5) - 1 do
    shape[i] = small()
  end
  local t = randn(shape, { dtype = one_of(DTYPES), seed = pick(100) })
  for _ = 1, pick(3) - 1 do
    local ok, view = pcall(one_of(VIEWS), t)
    t = ok and is_tensor(view) and view or t
  end
  return t
end

local variants, games = {}, {}
local function variant_()
  return one_of(variants)
end

-- A table whose answers are not those of the time before.
local function fickle()
  local function answer() return any(1) end
  return setmetatable({ number(), number() }, {
    __index = answer, __len = number, __tostring = chance(2) and word or answer,
    __call = answer, __eq = answer, __lt = answer, __le = answer,
    __concat = answer, __unm = answer, __add = answer, __close = answer,
    __pairs = function () return next, {}, nil end,
    __name = chance(2) and word() or number(),
    __metatable = chance(4) and word() or nil,
  })
end

local function list()
  local t = {}
  for i = 1, pick(6) - 1 do
    t[i] = chance(4) and any(1) or small()
  end
  return t
end

local function options(depth)
  local t = {}
  for _ = 1, pick(5) - 1 do
    t[one_of(KEYS)] = any(depth - 1)
  end
  if chance(8) then
    local key = any(1)
    if key ~= nil and key == key then
      t[key] = any(1)
    end
  end
  return t
end

local function changed(t, depth, times)
  local u = {}
  for k, x in pairs(t) do
    u[k] = x
  end
  for _ = 1, times or pick(3) - 1 do
    local keys = {}
    for k in pairs(t) do
      keys[#keys + 1] = k
    end
    u[#keys > 0 and chance(2) and one_of(keys) or one_of(KEYS)]
      = any(depth - 1)
  end
  return u
end

-- The arguments of v:forward and its like, with so many changed.
local function arguments(v, method, wrong)
  local step, back = method == "step", find(method, "backward")
  local sizes = { B = pick(2), T = step and 1 or pick(6) - 1, H = pick(2),
                  K = 2, V = 2 }
  local ok, t = pcall(v.random, v, sizes)
  t = ok and t or {}
  if not step and chance(3) then
    t.cu_seqlens = one_of { { 0, sizes.T }, { 0, 0, sizes.T }, { 0, 9, 2 },
                            { 1 << 62 }, {}, fickle(), flin.tensor { 0, 2 } }
  end
  t.save = back and chance(2) or nil
  local again, y, state, saved = pcall(v.forward, v, t)
  t.save = not back and not step and chance(3) or nil
  if again and chance(2) then
    t.inplace = step and chance(2) or nil
    t[step and "state" or "initial_state"] = state
  end
  if again and back then
    t.dy, t.dstate = y, chance(2) and state or nil
    t = saved and { saved = saved, dy = y } or t
  end
  return wrong > 0 and changed(t, 1, wrong) or t
end

local function sizes(depth)
  return changed({ K = pick(4), V = pick(4) }, depth, pick(2) - 1)
end

-- Functions that run while another one does.
local function inside(...)
  local before = #live
  for i = 1, select("#", ...) do
    local t = select(i, ...)
    if type(t) == "userdata" then
      live[#live + 1] = t
    elseif type(t) == "table" then
      keep(t)
      for _, name in pairs { "q", "k", "v", "g", "S", "a", "b" } do
        local ok, x = pcall(function () return t[name] end)
        if ok and x ~= nil then
          live[#live + 1] = x
        end
      end
    end
  end
  for _ = 1, pick(4) do
    call()
  end
  local results = {}
  for i = 1, pick(3) do
    results[i] = #live > 0 and chance(2) and one_of(live) or any(1)
  end
  if chance(2) and #live > 0 then
    results[1] = { S = one_of(live) }
  end
  for i = #live, before + 1, -1 do
    keep(live[i])
    live[i] = nil
  end
  return unpack(results)
end

local function good_step(x, s)
  local S = flin.exp(x.g) * s.S + flin.outer(x.k, x.v)
  return { S = S }, flin.dot(x.q, S)
end

local FUNCTIONS <const> = {
  inside, inside, good_step,
  function (x, s)
    inside(x, s)
    return good_step(x, s)
  end,
  function (i, j, p)
    inside(i, j, p)
    return i < j and 0 or p.g[j]
  end,
  function () end,
  function (...) return ... end,
  function () error(any(1)) end,
  function () return any(1) end,
  function (...) return yield(...) end,
  function () error(fickle()) end,
  function (x) return x and flin.prev(x) end,
  function (x) return x * 2 end,
  function (i, j, p) return i < j and 0 or p.g[j] end,
  function (i, j, p)
    keep(p)
    return flin.exp(p.g_cumsum[i] - p.g_cumsum[j])
  end,
}

local function definition(depth)
  local t = { name = "random",
              input = { q = "t k", k = "t k", v = "t v", g = "t" },
              state = { S = "k v" }, step = FUNCTIONS[2 + pick(2)] }
  if chance(3) then
    t.step, t.state, t.mask = nil, nil, FUNCTIONS[5]
  end
  if chance(4) then
    t.input = changed(t.input, depth)
  end
  if chance(3) then
    t[t.step and "step" or "mask"] = one_of(FUNCTIONS)
  end
  return chance(3) and changed(t, depth) or t
end

local SCALARS <const> = { number, number, word, word, small,
  function () return chance(2) end }
local OTHERS <const> = { tensor, tensor, variant_, fickle, list, list, options,
  definition, sizes, function () return one_of(FUNCTIONS) end,
  function () return kept[pick(60)] end, function () return one_of(games) end,
  function () return create(one_of(FUNCTIONS)) end,
  function () return flin.arange(pick(9)) end,
  function () return one_of(functions)[2] end,
  function (depth) return arguments(variant_(), "forward", depth) end }

function any(depth)
  if #live > 0 and chance(2) then
    return one_of(live)
  elseif chance(12) then
    return nil
  elseif depth <= 0 or chance(2) then
    return one_of(SCALARS)()
  end
  return one_of(OTHERS)(depth - 1)
end

-- ---- calls ----

-- Arguments that are right, by the last word of the name and what it belongs
-- to; a call changes some.
local function matrix(m, n) return randn({ m, n }, { seed = pick(100) }) end
local function of_tensor(f)
  return function ()
    local t = tensor()
    return t, f(t)
  end
end
local function same(n)
  return function ()
    local m, k, t = pick(4), pick(4), {}
    for i = 1, n do
      t[i] = matrix(m, k)
    end
    return unpack(t)
  end
end
local function behind(x, f)
  return function () return x, f() end
end
local function row_index() return flin.tensor { pick(3), pick(3) } end
local function game() return one_of(games), 1, 1 end
local function mask() return FUNCTIONS[pick(2) + #FUNCTIONS - 2] end

local RIGHT <const> = {
  tensor = {
    narrow = of_tensor(function (t) return t.rank, 1, 1 end),
    transpose = of_tensor(function (t) return 1, t.rank end),
    reshape = of_tensor(function () return { -1, 1 } end),
    to = of_tensor(function () return one_of(DTYPES) end),
    fill = of_tensor(number), copy = same(2),
    map = of_tensor(function () return FUNCTIONS[7] end),
    expand = of_tensor(function (t) return t.rank, small() end),
    windows = of_tensor(function (t) return t.rank, 2, t.rank + 1 end),
    sum_over = of_tensor(function (t) return pick(t.rank) end),
    gather = function () return matrix(2, 3), row_index() end,
    matmul = function () return matrix(2, 3), matrix(3, 4) end,
    __index = of_tensor(function (t) return pick(3) end),
    __newindex = of_tensor(function (t) return { 1, 1 }, 1 end),
    __add = same(2), __sub = same(2), __mul = same(2), __div = same(2),
  },
  host = {
    matmul = function ()
      local a, b = matrix(3, 3), matrix(3, 3)
      return a, b, { transpose = one_of { "", "a", "b", "ab" },
                     into = one_of { a, b, matrix(3, 3) }, add = chance(2) }
    end,
    take = function () return matrix(3, 2), row_index() end,
    put = function () return matrix(3, 2), row_index(), matrix(2, 2) end,
    add = same(2), mul = same(2), adam = same(4),
    apply = behind("silu", tensor), norm = behind("rms", tensor),
    apply_grad = behind("tanh", same(2)), norm_grad = behind("l2", same(2)),
    cross_entropy = function () return matrix(2, 3), row_index() end,
  },
  game = { again = game, compute = game, drop = game, load = game,
           store = game, value = game, is_red = game, is_blue = game },
  flin = {
    variant = definition, mask_report = mask,
    mask_values = function () return mask(), pick(5), { g = { 1, 2, 3, 4, 5 } }
    end,
    attention = function ()
      return { decay = flin.decay.gated { per = "head" } }
    end,
  },
}

-- The group of a function, and its own name.
local function place(name)
  local last = match(name, "[^.]+$")
  if find(name, "^flin%.tensor") then
    return "tensor", last
  elseif find(name, "%.host%.") then
    return "host", last
  elseif find(name, "^flin%.game") then
    return "game", last
  elseif find(name, "^flin%.methods") or find(name, "^flin%.variant") then
    return "variant", last
  end
  return "flin", last
end

local CALLS <const> = { forward = true, reference = true, step = true,
  backward = true, reference_backward = true, prepare = true }

local function right(name)
  local group, last = place(name)
  local f = RIGHT[group] and RIGHT[group][last]
  if f then
    return pack(f(2))
  elseif group == "tensor" or group == "host" then
    return pack(tensor())
  elseif group == "game" then
    return pack(one_of(games))
  elseif group == "variant" then
    local v = one_of(variants)
    if last == "dump" or last == "source" then
      return pack(v, last == "dump" and "TC" or "cuda", sizes(1))
    end
    return pack(v, CALLS[last] and arguments(v, last, pick(2) - 1) or sizes(1))
  end
  return { n = 0 }
end

local function text_of(x)
  if type(x) == "string" then
    return #x > 150 and format("%q..%d", x:sub(1, 150), #x) or format("%q", x)
  elseif is_tensor(x) then
    local shape = {}
    for i = 1, x.rank do
      shape[i] = x.shape[i]
    end
    return x.dtype .. "[" .. concat(shape, ",") .. "]"
  elseif type(x) == "table" and not getmetatable(x) then
    local parts = {}
    for k, y in next, x do
      parts[#parts + 1] = (type(k) == "string" and k or type(k)) .. "="
                          .. (type(y) == "table" and "{}" or text_of(y))
    end
    return "{" .. concat(parts, ", ") .. "}"
  elseif type(x) == "number" or type(x) == "boolean" or x == nil then
    return tostring(x)
  end
  return type(x)
end

-- Those with the most to go wrong come often: methods of variants, traces.
local often = {}
for _, f in pairs(functions) do
  local group, last = place(f[1])
  local heavy = group == "variant" or (group == "flin"
                and (last == "variant" or find(last, "^mask_")))
  local times = heavy and 8 or (group == "tensor" or group == "host") and 4
                or find(f[1], "flin") and 2 or 1
  for _ = 1, times do
    often[#often + 1] = f
  end
end

function call()
  local f = one_of(often)
  local args = chance(12) and { n = 0 } or right(f[1])
  local n = (args.n == 0 or chance(10)) and pick(5) or args.n
  for i = 1, n do
    if i > args.n or chance(10) then
      args[i] = any(2)
    end
  end
  if say then
    local texts = {}
    for i = 1, n do
      texts[i] = text_of(args[i])
    end
    say(f[1] .. "(" .. concat(texts, ", ") .. ")")
  end
  tick(f[1])
  local result = pack(pcall(f[2], unpack(args, 1, n)))
  if say then
    say((result[1] and "  -> " or "  ! ") .. text_of(result[2]))
  end
  for i = 2, result.n < 5 and result.n or 5 do
    if type(result[i]) == "userdata" or (type(result[i]) == "function"
                                         and chance(4)) then
      keep(result[i])
    end
  end
end

-- ---- what there is to be called with ----

for _, name in pairs { "simple_gla", "gated_deltanet", "mlstm" } do
  variants[#variants + 1] = flin.stdlib[name]
end
variants[#variants + 1] = variant {
  name = "delayed", input = { q = "t k", k = "t k", v = "t v", g = "t",
                              c = "k" },
  state = { S = "k v", n = "k" },
  step = function (x, s)
    local S = flin.exp(x.g) * s.S + flin.outer(x.k + flin.prev(x.k) * x.c, x.v)
    return { S = S, n = s.n + x.k }, flin.dot(x.q, S)
  end,
}
variants[#variants + 1] = variant {
  name = "masked", mask = function (i, j, p)
    return i < j and 0 or flin.exp(p.g_cumsum[i] - p.g_cumsum[j])
  end,
}
variants[#variants + 1] = variant {
  name = "pairs", mode = "quadratic", mask = function (i, j, p)
    return i < j and 0 or 1 / (1 + i - j)
  end,
}
for i = 1, 2 do
  games[i] = flin.pebble.game(4 * i)
  games[i]:input(1)
end

return function (n)
  for _ = 1, n do
    call()
  end
end
