-- learn.lua -- small models of bytes, one for each variant, trained side by
-- side on one text; how their held-out loss falls, beside what counting does.
local flin = require "flin"
local counts = require "counts"
local model = require "byte_model"

local learn = {}

local B <const> = 8                     -- sequences a batch
local RATE <const>, EVERY <const> = 4e-3, 20

-- ---- the text ----

function learn.read(path)
  local file <close> = io.open(path, "rb")
  return file and file:read "a"
end

-- Licences of a Debian, else this repository's own text.
function learn.default_text()
  local parts, folder = {}, "/usr/share/common-licenses/"
  for _, name in ipairs { "Apache-2.0", "Artistic", "GPL-1", "MPL-2.0",
                          "GFDL-1.3", "GPL-2", "LGPL-2.1", "GPL-3" } do
    parts[#parts + 1] = learn.read(folder .. name)
  end
  for _, name in ipairs { "README.md", "LICENSE", "compiler/ir.c",
                          "compiler/derive.c", "lang/tensor.c" } do
    parts[#parts + 1] = #parts < 8 and learn.read(name) or nil
  end
  return table.concat(parts)
end

-- Bytes at, before and behind each of T places from each start, as indices.
local function batch(text, starts, T)
  local parts = { {}, {}, {} }
  for i, at in ipairs(starts) do
    for p, shift in ipairs { 0, -1, 1 } do
      local row = { text:byte(at + shift, at + shift + T - 1) }
      for t = 1, T do row[t] = row[t] + 1 end
      parts[p][i] = row
    end
  end
  for p = 1, 3 do parts[p] = flin.tensor(parts[p]) end
  return parts
end

-- The held-out part in batches, `most` of them, evenly spread.
local function held_out(text, cut, T, most)
  local list, room = {}, #text - cut - B * T - 1
  for n = 1, most do
    local starts, at = {}, cut + 1 + (n - 1) * math.max(room, 0) // most
    for i = 1, B do
      starts[i] = math.min(at + (i - 1) * T, #text - T)
    end
    list[n] = batch(text, starts, T)
  end
  return list
end

local function loss_on(m, batches)
  local loss = 0
  for _, b in ipairs(batches) do loss = loss + m:loss(table.unpack(b)) end
  return loss / #batches / math.log(2)
end

-- One model: points { step, held-out bits }.
local function train(text, name, o, rest)
  local m = model.new { variant = flin.stdlib[name], width = 128, heads = 4,
                        k = 32, v = 32, seed = 1, call = { validate = false } }
  local points = { { 0, loss_on(m, rest) } }
  math.randomseed(1)                    -- the same batches for all
  for step = 1, o.steps do
    local starts = {}
    for i = 1, B do starts[i] = math.random(2, o.cut - o.T - 1) end
    local rate = RATE * math.min(step / 20, 1.05 - step / o.steps, 1)
    m:train(batch(text, starts, o.T), rate)
    if step % EVERY == 0 or step == o.steps then
      points[#points + 1] = { step, loss_on(m, rest) }
      o.progress("training %s: step %d of %d, %.2f bits a byte", name, step,
                 o.steps, points[#points][2])
    end
  end
  return points
end

-- options: names, steps, progress(format, ...). Returns the curves, what
-- counting reaches ({ name, bits }), and how many bytes were held out.
function learn.curves(text, options)
  local o = { steps = options.steps, progress = options.progress,
              T = math.max(8, math.min(128, #text // 40)) }
  o.cut = #text - #text // 10
  local series, levels = {}, {}
  local rest = held_out(text, o.cut, o.T, 6)
  for order = 0, 3 do
    o.progress("counting contexts of %d bytes", order)
    levels[#levels + 1] = { ("counts, order %d"):format(order),
                            counts.held_out(text, order, o.cut + 1) }
  end
  for i, name in ipairs(options.names) do
    series[i] = { name = name, points = train(text, name, o, rest) }
  end
  return series, levels, #text - o.cut
end

return learn
