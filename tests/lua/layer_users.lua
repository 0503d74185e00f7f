-- Layers as a user might write them, in odd sizes, of no token or sequence, of
-- one, packed, decoded behind a prefill, with what is no number; on the CPU, or
--   flin tests/lua/layer_users.lua cuda [NAME ...]
local flin = require "flin"
local count = require "support.count"
local check <const> = count.check
local dot, conv, silu, rename = flin.dot, flin.conv, flin.silu, flin.rename

local backend <const> = arg[1] or "cpu"
local only = arg[2] and {} or nil
for i = 2, #arg do only[arg[i]] = true end

local function rule(k, v, g)
  return flin.stdlib.simple_gla { q = k, k = k, v = v, g = flin.logsigmoid(g) }
end

local users <const> = {}
local function user(name, sizes, definition)
  definition.name = name
  definition.input = definition.input or { x = "t d" }
  users[name] = { layer = flin.layer(definition), sizes = sizes }
end

user("two_rules", { d = 7, h = 3, k = 5, v = 9 }, {
  weight = { Wk = "d h k", Wv = "d h v", Wb = "d h", U = "h v k",
             Wo = "h v d", norm = "v" },
  forward = function (x, w)
    local k, v, b = dot(x.x, w.Wk), dot(x.x, w.Wv), dot(x.x, w.Wb)
    local y = flin.stdlib.deltanet { q = k, k = flin.unit_norm(k, "k"), v = v,
                                     beta = flin.sigmoid(b) }
    y = y + rule(flin.unit_norm(dot(y, w.U, "v"), "k"), y, b)
    return x.x + dot(flin.rms_norm(y, "v") * w.norm, w.Wo)
  end,
})

user("weights_twice", { d = 5, h = 2, k = 3 }, {
  weight = { W = "d h k", Wo = "h k d" },
  forward = function (x, w)
    local function mix(z)
      local k <const> = flin.unit_norm(dot(z, w.W), "k")
      local y <const> = flin.stdlib.linear { q = k, k = silu(k),
                                             v = rename(k, "k", "v") }
      return dot(rename(y, "v", "k"), w.Wo)
    end
    return mix(mix(x.x))
  end,
})

user("tied", { d = 7, e = 13 }, {
  weight = { W = "d e" },
  forward = function (x, w) return dot(silu(dot(x.x, w.W)), w.W) end,
})

user("convolutions", { d = 3, w = 4, u = 2 }, {
  weight = { a = "d w", b = "d u", m = "d" },
  forward = function (x, w)
    return conv(silu(conv(x.x, w.a)), w.b) + (flin.prev(x.x) - x.x) * w.m
  end,
})

local average <const> = flin.variant {
  name = "average", input = { z = "t c", a = "t c : unit" },
  state = { m = "c" },
  step = function (x, s)
    local m <const> = x.a * s.m + (1 - x.a) * x.z
    return { m = m }, m
  end,
}
-- Three results of one call: in a layer each is a value.
local errors <const> = flin.variant {
  name = "errors",
  input = { q = "t k", k = "t k : unit_norm", v = "t v", g = "t : log_decay",
            beta = "t : unit" },
  state = { S = "k v" },
  step = function (x, s)
    local S <const> = flin.exp(x.g) * s.S
    local e <const> = x.v - dot(x.k, S)
    local now <const> = S + flin.outer(x.beta * x.k, e)
    return { S = now }, { y = dot(x.q, now), err = e, loss = dot(e, e) }
  end,
}
local function correct(x, w)
  local b <const> = dot(x, w.Wb)
  return errors { q = dot(x, w.Wq), k = flin.unit_norm(dot(x, w.Wk), "k"),
                  v = dot(x, w.Wv), g = flin.logsigmoid(b),
                  beta = flin.sigmoid(b) }
end
local corrects <const> = { Wq = "d h k", Wk = "d h k", Wv = "d h v",
                           Wb = "d h", Wo = "h v d" }
user("several_results", { d = 7, h = 3, k = 5, v = 9 }, {
  weight = corrects,
  forward = function (x, w)
    local r <const> = correct(x.x, w)
    return x.x + dot(r.y + flin.tanh(r.err) * r.loss, w.Wo)
  end,
})
user("one_of_several", { d = 6, h = 2, k = 4, v = 4 }, {
  weight = corrects,
  forward = function (x, w)
    local r <const> = correct(x.x, w)
    local again <const> = correct(dot(flin.silu(r.y), w.Wo), w)
    return dot(r.y * flin.rsqrt(again.loss + 1), w.Wo)
  end,
})

user("vector_state", { d = 5, c = 7 }, {
  weight = { W = "d c", A = "d c", O = "c d" },
  forward = function (x, w)
    return dot(average { z = dot(x.x, w.W), a = flin.sigmoid(dot(x.x, w.A)) },
               w.O)
  end,
})

user("shared_keys", { d = 6, h = 4, k = 3, v = 5 }, {
  weight = { K = "d k", V = "d h v", G = "d h", O = "h v d" },
  forward = function (x, w)
    return dot(rule(dot(x.x, w.K), dot(x.x, w.V), dot(x.x, w.G)), w.O)
  end,
})

user("mixture", { d = 5, e = 3, f = 7 }, {
  weight = { R = "d e", A = "d e f", B = "e f d" },
  forward = function (x, w)
    local p <const> = flin.softmax(dot(x.x, w.R), "e")
    return dot(p * silu(dot(x.x, w.A)), w.B)
  end,
})

user("two_inputs", { d = 5, e = 3, h = 2, k = 4, v = 3 }, {
  input = { x = "t d", z = "t e" },
  weight = { Q = "d h k", K = "e h k", V = "e h v", G = "d h k", O = "h v d" },
  forward = function (x, w)
    return x.x + dot(flin.stdlib.gla {
      q = dot(x.x, w.Q), k = dot(x.z, w.K), v = dot(x.z, w.V),
      g = flin.logsigmoid(dot(x.x, w.G))
    }, w.O)
  end,
})

user("norms", { d = 9, h = 2, v = 3 }, {
  weight = { s = "", W = "d h v", g = "h v", b = "h v", O = "h v d" },
  forward = function (x, w)
    local y <const> = flin.layer_norm(dot(x.x, w.W), "h v") * w.g + w.b
    return x.x + w.s * dot(silu(y), w.O)
  end,
})

user("no_weight", { d = 6 }, {
  forward = function (x) return flin.rms_norm(silu(x.x), "d") end,
})

-- ---- what they are held to ----

local function with(a, b)
  local all = {}
  for k, v in pairs(a) do all[k] = v end
  for k, v in pairs(b) do all[k] = v end
  return all
end

local function laws(name, u)
  for _, case in ipairs { { T = 33, B = 2 }, { T = 1, B = 1 },
                          { T = 20, cu_seqlens = { 0, 0, 1, 7, 20 } } } do
    case.backend = backend
    local worst <const> = u.layer:check(with(u.sizes, case)).worst
    check(("%s, T = %d"):format(name, case.T), worst < 1e-4, worst)
  end
  local half <const> = u.layer:check(with(u.sizes, {
    T = 33, B = 2, dtype = "bfloat16", backend = backend }))
  check(name .. ", bfloat16", half.y < 0.03, half.y)
end

local function random(u, B, T)
  return u.layer:random(with(u.sizes, { B = B, T = T, seed = 3 }))
end

-- Of no tokens the result is empty, and gradients of weights are zero.
local function nothing(name, u)
  for _, n in ipairs { { 0, 5 }, { 2, 0 } } do
    local x <const> = random(u, 1, 3)
    for _, in_ in ipairs(u.layer.inputs) do
      if in_.axes:find "^t" then
        local shape <const> = x[in_.name].shape
        x[in_.name] = flin.zeros { n[1], n[2], table.unpack(shape, 3) }
      end
    end
    x.backend = backend
    local y <const> = u.layer:forward(x)
    check(name .. ": an empty result", y.shape[1] == n[1]
          and y.shape[2] == n[2])
    x.dy = flin.zeros(y.shape)
    local gradients <const> = u.layer:backward(x)
    for _, in_ in ipairs(u.layer.inputs) do
      local g <const> = gradients["d_" .. in_.name] or gradients[in_.name]
      check(name .. ": a gradient of nothing", g and (in_.axes:find "^t"
            or g:maxabs() == 0), in_.name)
    end
  end
end

local function part(u, x, from, n)
  local some <const> = with(x, { backend = backend })
  for _, in_ in ipairs(u.layer.inputs) do
    if in_.axes:find "^t" then
      some[in_.name] = x[in_.name]:narrow(2, from, n)
    end
  end
  return some
end

local function decodes(name, u)
  local x <const> = random(u, 2, 9)
  local y <const> = u.layer:forward(with(x, { backend = backend }))
  local _, state = u.layer:forward(part(u, x, 1, 5))
  local worst = 0
  for t = 6, 9 do
    local token <const> = part(u, x, t, 1)
    token.initial_state = state
    local one
    one, state = u.layer:forward(token)
    worst = math.max(worst, (one - y:narrow(2, t, 1)):maxabs())
  end
  check(name .. ": tokens behind a prefill",
        worst < 1e-5 * math.max(1, y:maxabs()), worst)
end

-- Chunks are of 128 tokens at most.
local function keeps_apart(name, u)
  local x <const> = random(u, 2, 140)
  local y <const> = u.layer:forward(with(x, { backend = backend }))
  x.x = x.x:clone()
  local token <const> = x.x:narrow(1, 1, 1):narrow(2, 135, 1)
  token:copy(token * (0 / 0))
  local z <const> = u.layer:forward(with(x, { backend = backend }))
  local sum <const> = z:narrow(1, 1, 1):narrow(2, 135, 1):sum()
  check(name .. ": no number where there is none", sum ~= sum, sum)
  for axis, n in pairs { 1, 128 } do
    local from <const> = axis == 1 and 2 or 1
    local a <const>, b <const> = y:narrow(axis, from, n),
                                 z:narrow(axis, from, n)
    check(name .. ": what is no number stays there",
          (a - b):maxabs() == 0, (a - b):maxabs())
  end
end

for name, u in pairs(users) do
  if not only or only[name] then
    for _, law in ipairs { laws, nothing, decodes, keeps_apart } do
      law(name, u)
    end
  end
end

-- ---- what is refused ----

local function refused(what, text, f, ...)
  local ok, e = pcall(f, ...)
  check(what, not ok and tostring(e):find(text, 1, true), e)
end

local tied <const> = users.tied.layer
local x <const> = random(users.tied, 1, 3)
refused("a weight of another size", "make 'd' 7 in W, or 8 in x",
        tied.forward, tied, with(x, { W = flin.zeros { 8, 13 } }))
refused("a weight of whole numbers", 'help: W:to "float32"', tied.forward, tied,
        with(x, { W = flin.zeros { 7, 13 }:to "int32" }))
local function within(text, f)
  refused("a layer in a layer: " .. text, text, flin.layer, {
    name = "outer", input = { x = "t d" },
    weight = { W = "d e", own = "f e" },
    forward = f })
end
within("input 'W' is missing", function (v, w) return tied { x = v.x } end)
within("there is no input 'V'", function (v, w)
  return tied { x = v.x, W = w.W, V = w.W }
end)
within("has axis 'd'", function (v, w) return tied { x = v.x, W = w.own } end)
within("same for all tokens", function (v, w)
  return tied { x = v.x, W = v.x * w.W }
end)
refused("a layer that is defined in another's forward function",
        "'inner' is defined in the forward function", flin.layer, {
  name = "outer", input = { x = "t d" }, weight = { W = "d e" },
  forward = function (v, w)
    local inner = flin.layer {
      name = "inner", input = { x = "t d" }, weight = { W = "d e" },
      forward = function (a, b) return flin.dot(a.x, b.W) end }
    return inner { x = v.x, W = w.W }
  end })
count.finish()
