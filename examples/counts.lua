-- counts.lua -- what counting alone predicts: after each context of 0 to n
-- bytes, how often which byte came. Orders are mixed as Witten and Bell do: a
-- context has its say by how often, its shorter one by how many bytes came.
local counts = {}
counts.__index = counts

function counts.new(order)
  local self = setmetatable({ order = order }, counts)
  for n = 0, order do self[n] = {} end
  return self
end

-- Byte t has come.
function counts:add(text, t)
  local byte = text:byte(t)
  for n = 0, math.min(self.order, t - 1) do
    local context = text:sub(t - n, t - 1)
    local seen = self[n][context]
    if not seen then
      seen = { all = 0, kinds = 0, most = byte }
      self[n][context] = seen
    end
    if not seen[byte] then
      seen[byte], seen.kinds = 0, seen.kinds + 1
    end
    seen[byte], seen.all = seen[byte] + 1, seen.all + 1
    if seen[byte] >= seen[seen.most] then seen.most = byte end
  end
end

-- How many bits byte t takes, and the byte that the longest known context
-- would have guessed.
function counts:bits(text, t)
  local byte, p, guess = text:byte(t), 1 / 256, 32
  for n = 0, math.min(self.order, t - 1) do
    local seen = self[n][text:sub(t - n, t - 1)]
    if not seen then break end
    p = ((seen[byte] or 0) + seen.kinds * p) / (seen.all + seen.kinds)
    guess = seen.most
  end
  return -math.log(p, 2), guess
end

-- Bits a byte and top-1 percent on bytes from .. to, counting as it goes.
function counts.reading(text, order, from)
  local model, bits, hits = counts.new(order), 0, 0
  for t = 1, #text do
    if t >= from then
      local b, guess = model:bits(text, t)
      bits, hits = bits + b, hits + (guess == text:byte(t) and 1 or 0)
    end
    model:add(text, t)
  end
  return bits / (#text - from + 1), 100 * hits / (#text - from + 1)
end

-- Bits a byte of the text from `from` on, when what is before is known.
function counts.held_out(text, order, from)
  local model, bits = counts.new(order), 0
  for t = 1, from - 1 do model:add(text, t) end
  for t = from, #text do bits = bits + (model:bits(text, t)) end
  return bits / (#text - from + 1)
end

return counts
