-- train_24.lua -- trains the language model of train_24.py from Lua: layers,
-- their gradients and the optimiser are flin's, on a GPU where there is one.
--
--   flin examples/train_24.lua [OPTIONS] [FILE ...]
--
--   --mixer NAME     softmax (default), gated_deltanet, or hybrid: three layers
--                    of that and one of softmax
--   --device NAME    cuda or cpu; else the GPU, if there is one
--   --steps N        and --layers, --width, --heads, --key_heads, --hidden,
--                    --vocabulary, --batch, --length, --rate, --seed
--   --svg FILE       the losses, drawn
--
-- On a GPU the sizes are 24 layers of width 1024, 16 query and 4 key heads of
-- 64, SwiGLU of 4096, 32,000 tokens, 4 sequences of 1024, bfloat16; on a CPU
-- small ones, float32. A token is one of the text's most frequent words, or a
-- byte. Says milliseconds a step, tokens a second, losses, and on a GPU the
-- most memory that there was at a time.
local flin = require "flin"
local learn = require "learn"
local dot, silu, square, sum = flin.dot, flin.silu, flin.square, flin.sum

local FULL <const> = { layers = 24, width = 1024, heads = 16, key_heads = 4,
                       hidden = 4096, vocabulary = 32000, batch = 4,
                       length = 1024, steps = 100, rate = 3e-4 }
local SMALL <const> = { layers = 4, width = 64, heads = 4, key_heads = 1,
                        hidden = 256, vocabulary = 1000, batch = 2,
                        length = 64, steps = 20, rate = 3e-3 }
local MIXERS <const> = {
  softmax = { "softmax" }, gated_deltanet = { "delta" },
  hybrid = { "delta", "delta", "delta", "softmax" },
}
local BASE <const> = 10000              -- of the rotations' angles
local WARM <const> = 10                 -- steps up to the full rate

-- ---- options ----

local function usage(message, ...)
  io.stderr:write("train_24.lua: ", message:format(...), "\n")
  os.exit(1)
end

local function options()
  local o, files, i = { mixer = "softmax", seed = 1 }, {}, 1
  while arg[i] do
    local name = arg[i]:match "^%-%-(.+)"
    if not name then
      files[#files + 1] = arg[i]
    else
      i = i + 1
      local value = arg[i] or usage("--%s: a value is missing", name)
      local known = FULL[name] or name == "seed"
      if known then value = tonumber(value) end
      if not (known or name == "mixer" or name == "device" or name == "svg")
         or not value then
        usage("--%s %s: see its first lines", name, arg[i])
      end
      o[name] = value
    end
    i = i + 1
  end
  o.device = o.device or (flin.cuda() and "cuda" or "cpu")
  o.files = files
  o.dtype = o.device == "cuda" and "bfloat16" or "float32"
  for name, value in pairs(o.device == "cuda" and FULL or SMALL) do
    o[name] = o[name] or value
  end
  if not MIXERS[o.mixer] then usage("no mixer '%s'", o.mixer) end
  if o.width % o.heads ~= 0 or o.heads % o.key_heads ~= 0
     or o.width // o.heads % 2 ~= 0 then
    usage("%d heads do not share a width of %d in pairs of channels, or %d "
          .. "key heads them", o.heads, o.width, o.key_heads)
  end
  return o
end

-- ---- text ----

local function read_all(files)
  local parts = {}
  for i, path in ipairs(files) do
    parts[i] = learn.read(path) or usage("cannot read %s", path)
  end
  return #parts > 0 and table.concat(parts, "\n") or learn.default_text()
end

local function words_of(text)
  local words, at = {}, 1
  while at <= #text do
    local _, stop = text:find("^ ?[%a_]+", at)
    if not stop then _, stop = text:find("^%s+", at) end
    words[#words + 1] = text:sub(at, stop or at)
    at = (stop or at) + 1
  end
  return words
end

-- Whole numbers below `vocabulary`: the 256 bytes, then what is most frequent;
-- other words are their bytes.
local function tokens_of(text, vocabulary)
  local words, count, common = words_of(text), {}, {}
  for _, w in ipairs(words) do
    if not count[w] and #w > 1 then common[#common + 1] = w end
    count[w] = (count[w] or 0) + 1
  end
  table.sort(common, function (a, b)
    if count[a] ~= count[b] then return count[a] > count[b] end
    return a < b
  end)
  local index, tokens = {}, {}
  for i = 1, math.min(#common, vocabulary - 256) do
    index[common[i]] = 255 + i
  end
  for _, w in ipairs(words) do
    if index[w] then
      tokens[#tokens + 1] = index[w]
    else
      for _, byte in ipairs { w:byte(1, -1) } do tokens[#tokens + 1] = byte end
    end
  end
  return tokens
end

-- Endless: tokens and those behind them, [batch, length] each.
local function batches(o, tokens)
  local function cut(starts, shift)
    local rows = {}
    for i, at in ipairs(starts) do
      rows[i] = table.move(tokens, at + shift, at + shift + o.length - 1, 1, {})
    end
    return flin.tensor(rows, { dtype = "int64" })
  end
  math.randomseed(o.seed)
  return function ()
    local starts = {}
    for i = 1, o.batch do
      starts[i] = math.random(#tokens - o.length)
    end
    return cut(starts, 0), cut(starts, 1)
  end
end

-- ---- what the model is made of ----

local attention = flin.variant { name = "attention", normalise = "softmax" }

local embed = flin.layer {
  name = "embed", input = { id = "t : index n" }, weight = { E = "n d" },
  forward = function (x, w) return flin.pick(w.E, x.id, "n") end,
}
-- The gradient of a pick is a one where the token is: its product with d_y is
-- the embedding's gradient.
local ones_at = flin.layer {
  name = "ones_at", input = { z = "t n", id = "t : index n" },
  forward = function (x) return flin.pick(x.z, x.id, "n") end,
}
local product = flin.layer {
  name = "product", input = { z = "t n" }, weight = { E = "n d" },
  forward = function (x, w) return dot(x.z, w.E) end,
}
local norm = flin.layer {
  name = "norm", input = { x = "t d" }, weight = { norm = "d" },
  initial = { norm = 1 },
  forward = function (x, w) return flin.rms_norm(x.x, "d") * w.norm end,
}
local turned = flin.layer {
  name = "turned", input = { x = "t d", theta = "t p" },
  weight = { W = "d h k" },
  forward = function (x, w)
    return flin.rotate(dot(x.x, w.W), x.theta, "k")
  end,
}
local projected = flin.layer {
  name = "projected", input = { x = "t d" }, weight = { W = "d h k" },
  forward = function (x, w) return dot(x.x, w.W) end,
}
local back = flin.layer {
  name = "back", input = { x = "t d", y = "t h k" }, weight = { W = "h k d" },
  forward = function (x, w) return x.x + dot(x.y, w.W) end,
}
local added = flin.layer {
  name = "added", input = { x = "t d", y = "t d" },
  forward = function (x) return x.x + x.y end,
}
local wide = flin.layer {
  name = "wide", input = { x = "t d" },
  weight = { norm = "d", gate = "d e", up = "d e", down = "e d" },
  initial = { norm = 1 },
  forward = function (x, w)
    local n = flin.rms_norm(x.x, "d") * w.norm
    return x.x + dot(silu(dot(n, w.gate)) * dot(n, w.up), w.down)
  end,
}
local head = flin.layer {
  name = "head", input = { x = "t d", label = "t : index n" },
  weight = { norm = "d", W = "d n" }, initial = { norm = 1 },
  forward = function (x, w)
    local z = dot(flin.rms_norm(x.x, "d") * w.norm, w.W)
    return flin.logsumexp(z, "n") - flin.pick(z, x.label, "n")
  end,
}

-- The optimiser (AdamW), over each weight's rows.
local squares = flin.layer {
  name = "squares", input = { g = "t n" },
  forward = function (x) return sum(square(x.g), "n") end,
}
local total = flin.layer {
  name = "total", input = { s = "t n", before = "t" },
  forward = function (x) return x.before + sum(x.s, "n") end,
}
local FIRST <const>, SECOND <const> = 0.9, 0.95
local first = flin.layer {
  name = "first", input = { g = "t n", m = "t n" }, weight = { clip = "" },
  forward = function (x, w)
    return FIRST * x.m + (1 - FIRST) * w.clip * x.g
  end,
}
local second = flin.layer {
  name = "second", input = { g = "t n", v = "t n" }, weight = { clip = "" },
  forward = function (x, w)
    return SECOND * x.v + (1 - SECOND) * square(w.clip * x.g)
  end,
}
local moved = flin.layer {
  name = "moved", input = { m = "t n", p = "t n", v = "t n" },
  weight = { rate = "", decay = "", root = "" },
  forward = function (x, w)
    return x.p * w.decay
           - w.rate * x.m / (flin.sqrt(x.v) * w.root + 1e-8)
  end,
}

-- ---- the model ----

local Model = {}
Model.__index = Model

function Model:there(x) return self.o.device == "cuda" and x:to "cuda" or x end

-- A weight, its gradient's moments, and how it lies in rows.
function Model:weight(x)
  local rows = { 1, x.rank > 1 and x.shape[1] or 1, -1 }
  local zero = flin.zeros(x.shape):to(self.o.dtype)
  local w = { p = self:there(x:to(self.o.dtype)), rows = rows,
              shape = x.shape }
  w.m, w.v = self:there(zero):reshape(rows), self:there(zero):reshape(rows)
  self.weights[#self.weights + 1] = w
  self.parameters = self.parameters + x.count
  return w
end

-- The weights of a layer, by name: as its definition says they begin, else
-- normal numbers, a matrix's small.
function Model:weights_of(layer, sizes)
  local given, found = { seed = self.seed }, {}
  for axis in pairs(layer.axes) do given[axis] = sizes[axis] end
  local begun = layer:initial(given)
  for _, input in ipairs(layer.inputs) do
    local shape = {}
    for axis in input.axes:gmatch "%S+" do shape[#shape + 1] = sizes[axis] end
    if not input.axes:find "^t" then
      self.seed = self.seed + 1
      found[input.name] = self:weight(begun[input.name] or
        flin.randn(shape, { seed = self.seed }) * 0.02)
    end
  end
  return found
end

local function new_block(model, kind)
  local o = model.o
  local k = o.width // o.heads
  local s = { d = o.width, e = o.hidden, h = o.heads, k = k, v = k, w = 4 }
  local few = { d = o.width, h = o.key_heads, k = k }
  local b = { kind = kind, norm = model:weights_of(norm, s),
              wide = model:weights_of(wide, s) }
  if kind == "delta" then
    b.delta = model:weights_of(flin.layers.gated_deltanet, s)
  else
    b.q, b.back = model:weights_of(turned, s), model:weights_of(back, s)
    b.k, b.v = model:weights_of(turned, few), model:weights_of(projected, few)
  end
  return b
end

local function new_model(o)
  local m = setmetatable({ o = o, weights = {}, seed = 1000 * o.seed,
                           blocks = {}, parameters = 0, steps = 0 }, Model)
  local kinds = MIXERS[o.mixer]
  local s = { n = o.vocabulary, d = o.width }
  m.embed, m.head = m:weights_of(embed, s), m:weights_of(head, s)
  for i = 1, o.layers do
    m.blocks[i] = new_block(m, kinds[(i - 1) % #kinds + 1])
  end
  local rows = {}
  for t = 1, o.length do
    rows[t] = {}
    for p = 1, o.width // o.heads // 2 do
      rows[t][p] = (t - 1) * BASE ^ (-2 * (p - 1) / (o.width // o.heads))
    end
  end
  local all = {}
  for b = 1, o.batch do all[b] = rows end
  m.theta = m:there(flin.tensor(all))
  m.z = m:there(flin.zeros(o.batch, o.length, o.vocabulary):to(o.dtype))
  m.dy = m:there(flin.full({ o.batch, o.length }, 1 / (o.batch * o.length)))
  m.ones = m:there(flin.ones(o.batch, o.length):to(o.dtype))
  m.none = m:there(flin.zeros(1, 1))
  return m
end

-- ---- forward and back ----

-- A call of a layer: y, and what gives gradients of its inputs and leaves those
-- of its weights at them.
local function call(layer, inputs, weights)
  local all = { save = true }
  for name, x in pairs(inputs) do all[name] = x end
  for name, w in pairs(weights or {}) do all[name] = w.p end
  local y, _, saved = layer:forward(all)
  return y, function (dy)
    local d = layer:backward { saved = saved, dy = dy }
    for name, w in pairs(weights or {}) do w.g = d[name] end
    return d
  end
end

function Model:softmax(b, x)
  local n, norm_back = call(norm, { x = x }, b.norm)
  local q, q_back = call(turned, { x = n, theta = self.theta }, b.q)
  local k, k_back = call(turned, { x = n, theta = self.theta }, b.k)
  local v, v_back = call(projected, { x = n }, b.v)
  local y, y_back = call(attention, { q = q, k = k, v = v })
  local out, out_back = call(back, { x = x, y = y }, b.back)
  return out, function (dy)
    local d = out_back(dy)
    local by = y_back(d.y)
    local dn = self:sum(q_back(by.q).x, k_back(by.k).x)
    dn = self:sum(dn, v_back(by.v).x)
    return self:sum(d.x, norm_back(dn).x)
  end
end

function Model:delta(b, x)
  local n, norm_back = call(norm, { x = x }, b.norm)
  local y, y_back = call(flin.layers.gated_deltanet, { x = n }, b.delta)
  local out, out_back = call(added, { x = x, y = y })
  return out, function (dy)
    local d = out_back(dy)
    return self:sum(d.x, norm_back(y_back(d.y).x).x)
  end
end

function Model:sum(x, y) return (added:forward { x = x, y = y }) end

-- The mean loss, and what leaves the gradients of all weights at them.
function Model:loss(id, label)
  id, label = self:there(id), self:there(label)
  local x = embed:forward { id = id, E = self.embed.E.p }
  local steps = {}
  for _, b in ipairs(self.blocks) do
    x, steps[#steps + 1] = self[b.kind](self, b, x)
    x, steps[#steps + 1] = call(wide, { x = x }, b.wide)
  end
  local losses, head_back = call(head, { x = x, label = label }, self.head)
  return losses, function ()
    local d = head_back(self.dy).x
    for i = #steps, 1, -1 do
      local found = steps[i](d)
      d = flin.is_tensor(found) and found or found.x
      steps[i] = nil                    -- and what it has saved
    end
    local at = ones_at:backward { z = self.z, id = id, dy = self.ones }.z
    local E = self.embed.E
    E.g = product:backward { z = at, E = E.p, dy = d }.E
  end
end

-- ---- training ----

-- The norm of all gradients.
function Model:norm()
  local all = self.none
  for _, w in ipairs(self.weights) do
    local s = squares:forward { g = w.g:reshape(w.rows) }
    all = total:forward { s = s:reshape(1, 1, -1), before = all }
  end
  return all:to "cpu":sum() ^ 0.5
end

function Model:number(x) return self:there(flin.tensor(x)) end

function Model:update(norm)
  local t = self.steps
  local rate = self.o.rate * math.min(1, t / WARM)
  local clip = self:number(math.min(1, 1 / norm))
  local decay = self:number(1 - 0.1 * rate)
  local root = self:number((1 - SECOND ^ t) ^ -0.5)
  rate = self:number(rate / (1 - FIRST ^ t))
  for _, w in ipairs(self.weights) do
    local g = w.g:reshape(w.rows)
    w.m = first:forward { g = g, m = w.m, clip = clip }
    w.v = second:forward { g = g, v = w.v, clip = clip }
    w.p = moved:forward { m = w.m, v = w.v, p = w.p:reshape(w.rows),
                          rate = rate, decay = decay, root = root }
                :reshape(w.shape)
    w.g = nil
  end
end

-- The loss before the step, and the norm of its gradients.
function Model:train(id, label)
  self.steps = self.steps + 1
  local losses, backward = self:loss(id, label)
  backward()
  local norm = self:norm()
  self:update(norm)
  return losses:to "cpu":mean(), norm
end

local function median(list)
  table.sort(list)
  return list[(#list + 1) // 2]
end

local function main()
  local o = options()
  local tokens = tokens_of(read_all(o.files), o.vocabulary)
  if #tokens < 2 * o.length then usage "the text is too short" end
  local m, draw = new_model(o), batches(o, tokens)
  print(("%.1f million parameters, %d layers of %s, %d x %d tokens a step, %d "
         .. "tokens of text"):format(m.parameters / 1e6, o.layers, o.mixer,
                                     o.batch, o.length, #tokens))
  local points, times, most, last = {}, {}, 0, 0
  for step = 1, o.steps do
    local id, label = draw()
    local start = flin.clock()
    local loss, norm = m:train(id, label)
    times[step] = 1000 * (flin.clock() - start)
    collectgarbage()                    -- tensors that nobody has any more
    points[step], most = { step, loss }, math.max(most, norm)
    last = step > o.steps - 5 and last + loss / math.min(5, o.steps) or last
  end
  local first_loss = points[1][2]
  table.move(times, math.min(4, o.steps), o.steps, 1)
  local ms = median(table.move(times, 1, math.max(1, o.steps - 3), 1, {}))
  local peak = o.device == "cuda"
               and (", peak %.0f MB"):format(flin.cuda().peak / 2^20) or ""
  print(("%s: %.2f ms a step, %.0f tokens a second%s, loss %.3f -> %.3f, "
         .. "gradient norm up to %.2f"):format(o.mixer, ms, 1000 * o.batch
         * o.length / ms, peak, first_loss, last, most))
  if o.svg then
    flin.save(o.svg, flin.picture.curves({ { name = "flin", points = points } },
              { title = ("%s, %d layers"):format(o.mixer, o.layers),
                x = "step", y = "loss" }))
  end
  return last < first_loss
end

os.exit(main() and 0 or 1)
