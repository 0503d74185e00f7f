-- byte_model.lua -- a small model of bytes around any variant of flin:
--
--   h = embedding of the byte and of the one before
--   q, k, v, g ... = projections of rms(h), each brought into its domain
--   h = h + (rms(variant(q, k, v, g ...)) * silu(gate)) W
--   logits = rms(h) W
--
-- Every operation notes on a tape what its gradient is; the variant's is
-- v:backward.
local flin = require "flin"
local host = flin.host

local model = {}

-- ---- the tape ----

local Tape = {}
Tape.__index = Tape

local function new_tape() return setmetatable({ n = 0, grad = {} }, Tape) end

-- Adds dx, which is nobody else's, to the gradient of x.
function Tape:give(x, dx)
  if self.grad[x] then
    host.add(self.grad[x], dx)
  else
    self.grad[x] = dx
  end
end

-- y and, to be called with dy, its gradient
function Tape:note(y, back)
  self.n = self.n + 1
  self[self.n] = function () back(self.grad[y]) end
  return y
end

function Tape:backward(y, dy)
  self.grad[y] = dy
  for i = self.n, 1, -1 do self[i]() end
end

function Tape:linear(x, w)
  return self:note(host.matmul(x, w.value), function (dy)
    host.matmul(x, dy, { transpose = "a", into = w.grad, add = true })
    self:give(x, host.matmul(dy, w.value, { transpose = "b" }))
  end)
end

function Tape:bias(x, b)
  return self:note(host.add(x:clone(), b.value), function (dy)
    host.add(b.grad, host.sum_rows(dy))
    self:give(x, dy)
  end)
end

function Tape:take(w, index)
  return self:note(host.take(w.value, index), function (dy)
    host.put(w.grad, index, dy)
  end)
end

function Tape:apply(f, x)
  return self:note(host.apply(f, x), function (dy)
    self:give(x, host.apply_grad(f, x, dy))
  end)
end

function Tape:norm(kind, x)
  return self:note(host.norm(kind, x), function (dy)
    self:give(x, host.norm_grad(kind, x, dy))
  end)
end

function Tape:add(a, b)
  return self:note(host.add(a:clone(), b), function (dy)
    self:give(a, dy:clone())
    self:give(b, dy)
  end)
end

function Tape:mul(a, b)
  return self:note(host.mul(a, b), function (dy)
    self:give(a, host.mul(dy, b))
    self:give(b, host.mul(dy, a))
  end)
end

function Tape:reshape(x, shape)
  return self:note(x:reshape(shape), function (dy)
    self:give(x, dy:reshape(x.shape))
  end)
end

-- A parameter as it is, so that what follows can give it a gradient.
function Tape:parameter(w)
  local x = w.value:clone()
  return self:note(x, function (dy) host.add(w.grad, dy) end)
end

function Tape:variant(v, inputs, options)
  local call = {}
  for name, x in pairs(options) do call[name] = x end
  for name, x in pairs(inputs) do call[name] = x end
  return self:note((v:forward(call)), function (dy)
    call.dy = dy
    local grad = v:backward(call)
    for name, x in pairs(inputs) do self:give(x, grad[name]) end
  end)
end

-- ---- the model ----

-- What brings a plain projection into an input's domain.
local INTO <const> = {
  log_decay = "logsigmoid", unit = "sigmoid", positive = "softplus",
}

-- Sizes of the axes of an input, "t k"; without t.
local function sizes(self, axes)
  local list, count, timed = {}, 1, false
  for axis in axes:gmatch "%S+" do
    if axis == "t" then
      timed = true
    else
      local size = self.v.axes[axis] or self.size[axis] or self.size.k // 2
      list[#list + 1] = size
      count = count * size
    end
  end
  return list, count, timed
end

local Model = {}
Model.__index = Model

-- A trained tensor: normal numbers times scale.
function Model:parameter(name, shape, scale)
  self.seed = self.seed + 1
  local value = flin.randn(shape, { seed = self.seed }) * scale
  local zero = function () return flin.zeros(shape) end
  self.w[name] = { value = value, grad = zero(), m = zero(), v = zero() }
  self.names[#self.names + 1] = name
end

-- options: variant, width, heads, k and v (sizes of the axes), seed; call:
-- options for v:forward and v:backward.
function model.new(o)
  local self = setmetatable({ v = o.variant, heads = o.heads, w = {},
                              names = {}, seed = o.seed * 1000, steps = 0,
                              call = o.call, size = { k = o.k, v = o.v } },
                            Model)
  local D = o.width
  self:parameter("byte", { 256, D }, 0.5)
  self:parameter("before", { 256, D }, 0.5)
  for _, input in ipairs(self.v.inputs) do
    local shape, count, timed = sizes(self, input.axes)
    local out = o.heads * count
    if timed then
      self:parameter(input.name, { D, out }, D ^ -0.5)
    else
      table.insert(shape, 1, o.heads)
      self:parameter(input.name, shape, 1)
    end
    if timed and INTO[input.domain] then
      self:parameter(input.name .. "_bias", { out }, 0)
      if input.domain == "log_decay" then     -- from short memory to long
        local b = self.w[input.name .. "_bias"].value
        for i = 1, out do b[i] = 6 * i / out end
      end
    end
  end
  local _, count = sizes(self, self.v.output)
  self:parameter("gate", { D, o.heads * count }, D ^ -0.5)
  self:parameter("out", { o.heads * count, D }, (o.heads * count) ^ -0.5)
  self:parameter("head", { D, 256 }, D ^ -0.5)
  return self
end

-- One input of the variant from x [B, T, D].
function Model:input(tape, x, input)
  local shape, _, timed = sizes(self, input.axes)
  local w, z = self.w[input.name]
  local b = self.w[input.name .. "_bias"]
  if timed then
    z = tape:linear(x, w)
    z = b and tape:bias(z, b) or z
    z = tape:reshape(z, { x.shape[1], x.shape[2], self.heads,
                          table.unpack(shape) })
  else
    z = tape:parameter(w)
  end
  if input.domain == "unit_norm" then return tape:norm("l2", z) end
  return INTO[input.domain] and tape:apply(INTO[input.domain], z) or z
end

-- The mean loss in nats of predicting `target` after `byte`, each [B, T] and
-- counted from 1; and the tape that gives its gradients.
function Model:loss(byte, before, target)
  local tape, w, inputs = new_tape(), self.w, {}
  local h = tape:add(tape:take(w.byte, byte), tape:take(w.before, before))
  local x = tape:norm("rms", h)
  for _, input in ipairs(self.v.inputs) do
    inputs[input.name] = self:input(tape, x, input)
  end
  local y = tape:variant(self.v, inputs, self.call)
  y = tape:norm("rms", tape:reshape(y, { byte.shape[1], byte.shape[2], -1 }))
  y = tape:mul(y, tape:apply("silu", tape:linear(x, w.gate)))
  h = tape:add(h, tape:linear(y, w.out))
  local logits = tape:linear(tape:norm("rms", h), w.head)
  local loss, d = host.cross_entropy(logits, target)
  return loss, function () tape:backward(logits, d) end
end

-- One step of Adam on a batch; the loss before it.
function Model:train(batch, rate)
  for _, w in pairs(self.w) do w.grad:fill(0) end
  local loss, backward = self:loss(table.unpack(batch))
  backward()
  self.steps = self.steps + 1
  for _, name in ipairs(self.names) do
    local w = self.w[name]
    host.adam(w.value, w.grad, w.m, w.v,
              { step = self.steps, rate = rate, beta2 = 0.99 })
  end
  return loss
end

return model
