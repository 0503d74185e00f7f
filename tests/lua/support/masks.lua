-- Masks beside the plain sum over j of L(i, j) (q_i . k_j) v_j: what their
-- tests share.
local flin = require "flin"
local count = require "support.count"
local check <const> = count.check

local masks = { T = 41, K = 3, V = 2 }
local T <const>, K <const>, V <const> = masks.T, masks.K, masks.V

local seed = 12345
function masks.random(n)
  seed = (seed * 1103515245 + 12345) & 0x7fffffff
  return (seed >> 8) % n + 1
end

function masks.number() return masks.random(2000) / 1000 - 1.0005 end
local number <const> = masks.number

-- What an input holds for one token: a number, or a list of them.
local function token(input)
  local size = input.axes:find("k") and K or input.axes:find("v") and V
  if size then
    local x = {}
    for d = 1, size do x[d] = number() end
    return x
  end
  if input.domain == "positive" then return math.abs(number()) end
  return input.domain == "log_decay" and -math.abs(number()) or number()
end

-- A tensor [1, T, 1, ...] (or [1]) for each input, and plain numbers.
function masks.draw(v)
  local tensors, numbers = {}, {}
  for _, input in ipairs(v.inputs) do
    local x, rows = token(input), { {} }
    if input.axes:find("t") then
      x = {}
      for t = 1, T do
        x[t] = token(input)
        rows[1][t] = { x[t] }
      end
    else
      rows = { x }
    end
    numbers[input.name] = x
    tensors[input.name] = flin.tensor(rows, { dtype = "float64" })
  end
  return tensors, numbers
end

function masks.plain(L, n)
  local y = {}
  for i = 1, T do
    y[i] = {}
    for d = 1, V do
      local s = 0
      for j = 1, T do
        local qk = 0
        for c = 1, K do qk = qk + n.q[i][c] * n.k[j][c] end
        s = s + L[i][j] * qk * n.v[j][d]
      end
      y[i][d] = s
    end
  end
  return y
end

function masks.distance(y, want)
  local err, size = 0, 0
  local got = y:totable()[1]
  for i = 1, T do
    for d = 1, V do
      local x, w = got[i][1][d], want[i][d]
      if x ~= x then return math.huge end
      err, size = err + (x - w)^2, size + w^2
    end
  end
  return math.sqrt(err / size)
end

-- 1e-12: float64, some hundred terms. 1e-5: float32, as for every variant.
-- forward: it has too many states for gradients.
function masks.same_as_sum(name, mask, def, limit, forward)
  def = def or {}
  def.name, def.mask = name, mask
  local ok, v = pcall(flin.variant, def)
  check(name .. " compiles", ok, v)
  if not ok then return end
  local tensors, numbers = masks.draw(v)
  local want = masks.plain(flin.mask_values(mask, T, numbers), numbers)
  local e = masks.distance(v:reference(tensors), want)
  check(name .. " step", e <= 1e-12, e)
  for key, x in pairs(tensors) do tensors[key] = x:to("float32") end
  for _, chunk in ipairs { 8, 16, 64 } do
    tensors.chunk = chunk
    e = masks.distance(v:forward(tensors), want)
    check(name .. " chunk " .. chunk, e <= (limit or 1e-5), e)
  end
  e = v:check { T = 30, chunk = 16, backward = not forward }
  check(name .. " check", e.worst <= (limit or 1e-5), e.worst)
end

return masks
