-- byte_model.lua -- a small model of bytes around any variant of flin: the
-- embeddings of the byte and of the one before, and a layer,
--
--   q, k, v, g ... = projections of rms(x), each brought into its domain
--   h = x + (rms(variant(q, k, v, g ...)) * silu(rms(x) gate)) out
--   loss = cross-entropy of rms(h) head
--
-- whose gradients are layer:backward's.
local flin = require "flin"
local host, dot, normal = flin.host, flin.dot, flin.initial.normal

local model = {}

-- ---- the layer ----

-- What brings a plain projection into an input's domain.
local INTO <const> = {
  log_decay = flin.logsigmoid, unit = flin.sigmoid, positive = flin.softplus,
}

-- The axes of an input, "t k", without t; and whether it has t.
local function axes_of(text)
  local axes, timed = {}, false
  for axis in text:gmatch "%S+" do
    if axis == "t" then timed = true else axes[#axes + 1] = axis end
  end
  return axes, timed
end

local function joined(axes)
  return table.concat({ "h", table.unpack(axes) }, " ")
end

-- The weights of an input: a projection and its bias; or the input itself,
-- which has no tokens.
local function add_weights(input, width, weight, initial)
  local axes, timed = axes_of(input.axes)
  local name, own = "of_" .. input.name, joined(axes)
  weight[name] = timed and "d " .. own or own
  initial[name] = normal(timed and width ^ -0.5 or 1)
  if timed and INTO[input.domain] then
    weight[name .. "_bias"] = own       -- decays from short memory to long
    initial[name .. "_bias"] = input.domain == "log_decay"
                               and flin.initial.channels { 0, 6 } or 0
  end
end

local function value(input, x, w)
  local axes, timed = axes_of(input.axes)
  local z = w["of_" .. input.name]
  if timed then z = dot(x, z, "d") end
  if input.domain == "unit_norm" then return flin.unit_norm(z, axes[#axes]) end
  local into = timed and INTO[input.domain]
  return into and into(z + w["of_" .. input.name .. "_bias"]) or z
end

-- Its result is the loss of each token, in nats.
local function layer_of(variant, width, count)
  local out = joined(axes_of(variant.output))
  local weight = { gate = "d " .. out, out = out .. " d", head = "d byte" }
  local initial = { gate = normal(width ^ -0.5), out = normal(count ^ -0.5),
                    head = normal(width ^ -0.5) }
  for _, input in ipairs(variant.inputs) do
    add_weights(input, width, weight, initial)
  end
  return flin.layer {
    name = variant.name .. "_bytes", weight = weight, initial = initial,
    input = { embedded = "t d", target = "t : index byte" },
    forward = function (x, w)
      local h, inputs = flin.rms_norm(x.embedded, "d"), {}
      for _, input in ipairs(variant.inputs) do
        inputs[input.name] = value(input, h, w)
      end
      local y = flin.rms_norm(variant(inputs), out)
      y = y * flin.silu(dot(h, w.gate))
      local z = flin.rms_norm(x.embedded + dot(y, w.out), "d")
      z = dot(z, w.head)
      return flin.logsumexp(z, "byte") - flin.pick(z, x.target, "byte")
    end,
  }
end

-- ---- the model ----

local Model = {}
Model.__index = Model

function Model:parameter(name, tensor)
  local zero = function () return flin.zeros(tensor.shape) end
  self.w[name] = { value = tensor, grad = zero(), m = zero(), v = zero() }
  self.names[#self.names + 1] = name
end

-- Sizes of the layer's axes.
local function sizes(o)
  local size = { d = o.width, h = o.heads, byte = 256 }
  for _, input in ipairs(o.variant.inputs) do
    for _, axis in ipairs(axes_of(input.axes)) do
      size[axis] = o.variant.axes[axis] or o[axis] or o.k // 2
    end
  end
  return size
end

-- options: variant, width, heads, k and v (sizes of the axes), seed; call:
-- options for layer:forward and layer:backward.
function model.new(o)
  local self = setmetatable({ v = o.variant, w = {}, names = {}, steps = 0,
                              call = o.call }, Model)
  local size = sizes(o)
  size.seed = o.seed
  self.layer = layer_of(o.variant, o.width, o.heads * o.v)
  for i, name in ipairs { "byte", "before" } do
    self:parameter(name, flin.randn(256, o.width, { seed = 1000 * o.seed + i })
                         * 0.5)
  end
  local weights = self.layer:initial(size)
  local names = {}
  for name in pairs(weights) do names[#names + 1] = name end
  table.sort(names)
  for _, name in ipairs(names) do self:parameter(name, weights[name]) end
  return self
end

-- The mean loss in nats of predicting `target` after `byte`, each [B, T] and
-- counted from 1; and what adds its gradients to the parameters'.
function Model:loss(byte, before, target)
  local call = { embedded = host.add(host.take(self.w.byte.value, byte),
                                     host.take(self.w.before.value, before)),
                 target = (target - 1):to "int64" }
  for name, w in pairs(self.w) do
    if name ~= "byte" and name ~= "before" then call[name] = w.value end
  end
  for name, x in pairs(self.call or {}) do call[name] = x end
  call.save = true
  local y, _, saved = self.layer:forward(call)
  local count = y.count
  return y:sum() / count, function ()
    local grad = self.layer:backward { saved = saved,
                                       dy = flin.full(y.shape, 1 / count) }
    host.put(self.w.byte.grad, byte, grad.embedded)
    host.put(self.w.before.grad, before, grad.embedded)
    for name, w in pairs(self.w) do
      if grad[name] then host.add(w.grad, grad[name]) end
    end
  end
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
