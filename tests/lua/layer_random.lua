-- Random layers: their parts against the truth, forward, backward, token by
-- token. flin tests/lua/layer_random.lua 1000 500: a thousand, from 500 on;
-- with a backend behind it, there. Plans take turns: what is cheapest, parts
-- apart, as much as can be in calls.
local flin = require "flin"

local count = require "support.count"
local generator = require "support.generator"

local layers, first = tonumber(arg[1]) or 30, tonumber(arg[2]) or 1

-- Values by their axes.
local KINDS <const> = { "d", "e", "h", "h k", "h v", "h k v" }

local function last(kind) return kind:match "%S+$" end

-- A program p is lines of Lua; p.values has the names of values by kind, and
-- p.weights the axes of weights by name.
local function keep(p, kind, expression, ...)
  local name = "v" .. #p.lines
  p.lines[#p.lines + 1] = ("local %s = " .. expression):format(name, ...)
  p.values[kind] = p.values[kind] or {}
  table.insert(p.values[kind], name)
end

local function pick(p, kind)
  local list = p.values[kind]
  return list[p.random(#list)]
end

local function some(p)
  local kinds = {}
  for _, kind in ipairs(KINDS) do
    if p.values[kind] then kinds[#kinds + 1] = kind end
  end
  return kinds[p.random(#kinds)]
end

-- An old one of these axes, or a new one, their order drawn.
local function weight(p, axes)
  local name = axes:gsub(" ", "_") .. p.random(2)
  if not p.weights[name] then
    local list = {}
    for axis in axes:gmatch "%S+" do
      table.insert(list, p.random(#list + 1), axis)
    end
    p.weights[name] = table.concat(list, " ")
  end
  return "w." .. name
end

local steps = {}

function steps.product(p)
  local from, to = some(p), KINDS[p.random(#KINDS - 1)]
  for axis in to:gmatch "%S+" do
    if from:find(axis) then return end
  end
  keep(p, to, "tanh(dot(%s, %s))", pick(p, from),
       weight(p, from .. " " .. to))
end

function steps.heads(p)                 -- a matrix for each head
  keep(p, "h v", "tanh(dot(%s, %s, 'k'))", pick(p, "h k"),
       weight(p, "h k v"))
end

function steps.elementwise(p)
  local kind = some(p)
  local a, b = pick(p, kind), pick(p, kind)
  local w = weight(p, p.random(2) == 1 and kind or last(kind))
  local forms = { "%s * %s", "flin.silu(%s) + %s", "flin.max(%s, %s) * " .. w,
                  "%s + 0 * %s + " .. w, "flin.sigmoid(%s - %s)",
                  "flin.where(flin.lt(0, %s), %s, 0.5 * " .. w .. ")",
                  "%s + flin.detach(%s * " .. w .. ")" }
  keep(p, kind, forms[p.random(#forms)], a, b)
end

function steps.norm(p)                  -- of what is not nearly 0
  local kind = some(p)
  -- the gradient of a layer_norm of two entries is nearly 0
  local names = { "rms_norm", "unit_norm", last(kind):find "[eh]"
                                           and "rms_norm" or "layer_norm" }
  keep(p, kind, "flin.%s(%s + 3 * %s%s)", names[p.random(3)], pick(p, kind),
       weight(p, kind), p.random(2) == 1 and ", '" .. last(kind) .. "'" or "")
end

function steps.reduce(p)
  keep(p, "h", "flin.mean(%s, 'k')", pick(p, "h k"))
end

function steps.conv(p)
  local kind = some(p)
  local taps = weight(p, (p.random(2) == 1 and kind or last(kind)) .. " w")
  keep(p, kind, p.random(3) == 1 and "conv(%s, tanh(%s))" or "conv(%s, %s)",
       pick(p, kind), taps)
end

-- Some that do not wait for one another, or share their taps; and, perhaps, one
-- that waits for the first.
function steps.beside(p)
  local of, taps = {}, {}
  for i = 1, 1 + p.random(3) do
    local kind = some(p)
    of[i] = { kind, pick(p, kind) }
  end
  for _, x in ipairs(of) do
    local kind <const> = x[1]
    if not taps[kind] or p.random(3) > 1 then
      taps[kind] = weight(p, kind .. " w")
    end
    keep(p, kind, p.random(2) == 1 and "flin.silu(conv(%s, %s))"
                  or "flin.unit_norm(conv(%s, %s))", x[2], taps[kind])
  end
  if p.random(2) == 1 then
    local kind <const> = of[1][1]
    local made = p.values[kind]
    keep(p, kind, "conv(%s, %s)", made[#made], weight(p, kind .. " w"))
  end
end

function steps.prev(p)
  local kind = some(p)
  keep(p, kind, "flin.prev(%s)", pick(p, kind))
end

function steps.rule(p)
  local function gate()                 -- of tokens, of a weight, a number
    return p.values.h and p.random(2) == 1 and pick(p, "h")
           or p.random(4) == 1 and "0.3" or weight(p, "h")
  end
  local rules = {
    linear = "", simple_gla = ", g = -softplus(%s)",
    deltanet = ", beta = flin.sigmoid(%s)", gla = ", g = -softplus(%s)",
    gated_deltanet = ", g = -softplus(%s), beta = flin.sigmoid(%s)"
  }
  local names = { "linear", "simple_gla", "deltanet", "gla",
                  "gated_deltanet" }
  local name = names[p.random(#names)]
  local more = rules[name]:gsub("%%s", function ()
    return name == "gla" and pick(p, "h k") or gate()
  end)
  keep(p, "h v", "tanh(flin.stdlib.%s { q = %s, k = flin.unit_norm(%s, 'k'), "
       .. "v = %s%s })", name, pick(p, "h k"), pick(p, "h k"),
       pick(p, "h v"), more)
end

local names = {}
for name in pairs(steps) do names[#names + 1] = name end
table.sort(names)

local function program(seed)
  local p = { random = generator(seed), values = { d = { "x.x" } },
              weights = {}, lines = {} }
  keep(p, "h k", "tanh(dot(x.x, %s))", weight(p, "d h k"))
  keep(p, "h v", "tanh(dot(x.x, %s))", weight(p, "d h v"))
  for _ = 1, 3 + p.random(8) do
    steps[names[p.random(#names)]](p)
  end
  local read = { "x.x" }                -- all there is
  for _, kind in ipairs(KINDS) do
    for _, value in ipairs(p.values[kind] or {}) do
      read[#read + 1] = ("0.3 * flin.mean(tanh(%s - 0.3))"):format(value)
    end
  end
  for name in pairs(p.weights) do
    read[#read + 1] = ("0.01 * flin.mean(w.%s)"):format(name)
  end
  table.sort(read)
  return p.weights, [[
local flin = require "flin"
local dot, conv, tanh, softplus = flin.dot, flin.conv, flin.tanh, flin.softplus
return function (x, w)
]] .. table.concat(p.lines, "\n") .. "\nreturn " .. table.concat(read, " + ")
   .. "\nend\n"
end

local function loaded(text)
  local path = os.tmpname()
  local file <close> = assert(io.open(path, "w"))
  file:write(text)
  file:flush()
  local f = dofile(path)
  os.remove(path)
  return f
end

local PLANS <const> = { "fused", "separate", "fused", nil }

for seed = first, first + layers - 1 do
  local weights, text = program(seed)
  local ok, layer = pcall(flin.layer, {
    name = "random", input = { x = "t d" }, weight = weights,
    forward = loaded(text)
  })
  local sizes = { B = 2, T = 13, chunk = 4, seed = seed, threads = 1,
                  backend = arg[3], plan = PLANS[seed // 3 % 4 + 1] }
  if seed % 3 == 0 then
    sizes.cu_seqlens = { 0, 4, 4, 5, 13 }
  end
  for axis, n in pairs { d = 3, e = 2, h = 2, k = 4, v = 3, w = 3 } do
    sizes[axis] = ok and layer.axes[axis] ~= nil and n or nil
  end
  local done, c = pcall(ok and layer.check or error, layer, sizes)
  count.expect(done and c.worst < 1e-4, "%d, %s: %s\n%s", seed,
               sizes.plan, c, text)
end
count.finish()
