-- train.lua -- trains a model of bytes on a text, by flin's gradients.
--
--   flin examples/train.lua [OPTIONS] [FILE]
--
--   --variant NAME   one of the standard library's (gated_deltanet)
--   --steps N        steps of training (300)
--   --seed N         where it starts (1)
--   --serial         one token after another instead of chunks
--   --compare        both ways: how far apart the losses of the two get
--   --check          the model's gradients against differences
--
-- Without a file: licences of a Debian, else this repository's own text. The
-- last tenth is held out. The measure is the order-0 entropy, what a
-- model reaches that knows how frequent each byte is, and nothing else.
local flin = require "flin"
local learn = require "learn"
local model = require "byte_model"

local B <const>, T <const> = 8, 128     -- sequences a batch, bytes each
local RATE <const> = 4e-3

-- ---- options ----

local function usage(message)
  io.stderr:write("train.lua: ", message, "\n")
  os.exit(1)
end

local option = { variant = "gated_deltanet", steps = 300, seed = 1 }
do
  local i = 1
  while arg[i] do
    local name = arg[i]:match "^%-%-(.+)"
    if not name then
      option.file = arg[i]
    elseif name == "serial" or name == "compare" or name == "check" then
      option[name] = true
    elseif name == "variant" then
      option.variant, i = arg[i + 1] or usage "--variant NAME", i + 1
    elseif name == "steps" or name == "seed" then
      option[name] = math.tointeger(tonumber(arg[i + 1]))
                     or usage("--" .. name .. " takes a whole number")
      i = i + 1
    else
      usage("no option " .. arg[i] .. "; there are --variant --steps --seed "
            .. "--serial --compare --check")
    end
    i = i + 1
  end
end

-- ---- the text ----

local text = option.file and (learn.read(option.file)
                              or usage("cannot read " .. option.file))
             or learn.default_text()
if #text < 20 * T then usage("a text of " .. 20 * T .. " bytes or more") end
local cut = #text - #text // 10

-- Bits per byte of the text from `from` on, if `counted` is what is known.
local function entropy(counted, from)
  local count, bits = {}, 0
  for b in counted:gmatch "." do count[b] = (count[b] or 0) + 1 end
  for b in text:sub(from):gmatch "." do
    bits = bits - math.log((count[b] or 0.5) / #counted, 2)
  end
  return bits / (#text - from + 1)
end

-- Bytes at, at - 1 and at + 1 of each of the places, as indices from 1.
local function batch(places)
  local parts = { {}, {}, {} }
  for i, at in ipairs(places) do
    for p, shift in ipairs { 0, -1, 1 } do
      local row = { text:byte(at + shift, at + shift + T - 1) }
      for t = 1, T do row[t] = row[t] + 1 end
      parts[p][i] = row
    end
  end
  for p = 1, 3 do parts[p] = flin.tensor(parts[p]) end
  return parts
end

local function random_batch()
  local places = {}
  for i = 1, B do places[i] = math.random(2, cut - T - 1) end
  return batch(places)
end

local function held_out(m)
  local loss, n = 0, 0
  for at = cut + 1, #text - B * T - 1, B * T do
    local places = {}
    for i = 1, B do places[i] = at + (i - 1) * T end
    loss = loss + m:loss(table.unpack(batch(places)))
    n = n + 1
    if n == 24 then break end
  end
  return loss / math.max(n, 1) / math.log(2)
end

-- ---- training ----

local function new_model(name, serial)
  return model.new { variant = flin.stdlib[name], width = 128, heads = 4,
                     k = 32, v = 32, seed = option.seed,
                     call = { serial = serial } }
end

-- Calls each(step, loss in bits) after every step.
local function train(m, steps, each)
  math.randomseed(option.seed)
  for step = 1, steps do
    local warm, left = step / 20, 1.05 - step / steps
    local loss = m:train(random_batch(), RATE * math.min(warm, left, 1))
    each(step, loss / math.log(2))
  end
end

local function compare(name)
  local chunked, worst, last = {}, 0, 0
  train(new_model(name, false), option.steps, function (step, loss)
    chunked[step] = loss
  end)
  train(new_model(name, true), option.steps, function (step, loss)
    worst, last = math.max(worst, math.abs(loss - chunked[step])), loss
    io.write(("\r%s: step %d, %.4f bits by token, %.4f by chunk"):format(
             name, step, loss, chunked[step]))
    io.flush()
  end)
  io.write(("\r%s: %d steps to %.4f bits; by token and by chunk at most "
            .. "%.1e apart\n"):format(name, option.steps, last, worst))
  return worst
end

-- The largest gradient of every parameter and a few others against central
-- differences: the worst distance, relative to the largest. Losses are means
-- of float32 logits: a difference over 2e-2 is good to about 1e-6.
local function check(m)
  math.randomseed(option.seed)
  local data, worst, where = random_batch(), 0, ""
  local _, backward = m:loss(table.unpack(data))
  backward()
  for _, name in ipairs(m.names) do
    local value = m.w[name].value:reshape(-1)
    local grad = m.w[name].grad:reshape(-1)
    local largest = grad:maxabs()
    local top = grad:reshape(1, -1):argmax()[1]
    for try = 0, 2 do
      local i = try == 0 and math.tointeger(top) or math.random(#value)
      local keep, side = value[i], {}
      for s = 1, 2 do
        value[i] = keep + 1e-2 * (3 - 2 * s)
        side[s] = m:loss(table.unpack(data))
      end
      value[i] = keep
      local off = math.abs((side[1] - side[2]) / 2e-2 - grad[i]) / largest
      if off >= worst then worst, where = off, name end
    end
  end
  print(("%s: %d gradients, at most %.1e from differences, of the largest "
         .. "(%s)"):format(m.v.name, 3 * #m.names, worst, where))
  return worst
end

local function main()
  local m = new_model(option.variant, option.serial)
  local order0 = entropy(text:sub(1, cut), cut + 1)
  local start, mean = os.clock(), nil
  print(("%s on %d bytes; order 0: %.3f bits a byte, held out %.3f"):format(
        option.variant, #text, entropy(text, 1), order0))
  train(m, option.steps, function (step, loss)
    mean = mean and 0.95 * mean + 0.05 * loss or loss
    if step % 10 == 0 or step == option.steps then
      io.write(("\rstep %4d of %d  %.3f bits a byte  %3.0f s"):format(
               step, option.steps, mean, os.clock() - start))
      io.flush()
    end
  end)
  local rest = held_out(m)
  print(("\nheld out: %.3f bits a byte, %.0f %% of order 0"):format(
        rest, 100 * rest / order0))
  return rest < order0
end

local ok
if option.check then
  ok = check(new_model(option.variant, option.serial)) < 1e-2
elseif option.compare then
  ok = compare(option.variant) <= 1e-3
else
  ok = main()
end
os.exit(ok and 0 or 1)
