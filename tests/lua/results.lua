-- Steps of several results: as many tensors, each with its own axes; each may
-- be given a gradient, together or alone.
local flin = require "flin"
local exp, dot, outer = flin.exp, flin.dot, flin.outer

local passed, failed = 0, 0
local function expect(name, good, more)
  if good then
    passed = passed + 1
  else
    failed = failed + 1
    print(("FAIL %s %s"):format(name, more or ""))
  end
end

local function define(step, states)
  return flin.variant {
    name = "several",
    input = { q = "t k", k = "t k : unit_norm", v = "t v",
              g = "t : log_decay", beta = "t : unit" },
    state = states or { S = "k v" }, step = step
  }
end

local function delta(x, s)
  local S = exp(x.g) * s.S
  local e = x.v - dot(x.k, S)
  S = S + outer(x.beta * x.k, e)
  return { S = S }, { y = dot(x.q, S), err = e, loss = dot(e, e),
                      qk = dot(x.q, x.k), again = dot(x.q, S) }
end

local function bent(x, s)               -- token by token
  local n = flin.tanh(s.n + x.v) * x.beta
  return { n = n }, { y = n * dot(x.q, x.k), norm = exp(x.g) * dot(n, n) }
end

-- What comes is what goes to the y of a variant that has that result alone.
local function same_alone(v, x)
  local r = v:forward(x)
  local alone = define(function (x, s)
    local states, r = delta(x, s)
    return states, r.err + 1e-30 * r.qk
  end)
  local d = flin.randn(r.err.shape)
  local both, one = { dy = { err = d } }, { dy = d }
  for name, t in pairs(x) do
    both[name], one[name] = t, t
  end
  expect("err alone", (alone:forward(x) - r.err):maxabs() < 1e-5)
  local a, b = v:backward(both), alone:backward(one)
  for _, name in ipairs { "k", "v", "g", "beta" } do
    expect("gradient of " .. name, (a[name] - b[name]):maxabs() < 1e-4)
  end
  expect("q has none", a.q:maxabs() == 0)
end

local v, serial = define(delta), define(bent, { n = "v" })
expect("order", tostring(v):find(
  "-> y [t v], again [t v], err [t v], loss [t], qk [t]", 1, true))
expect("five", #v.outputs == 5 and v.outputs[1].name == "y"
       and v.outputs[4].axes == "t")
for _, o in ipairs { { T = 70, chunk = 16 }, { cu_seqlens = { 0, 5, 40, 70 } },
                     { T = 20, dtype = "bfloat16" } } do
  for _, each in ipairs { v, serial } do
    o.K, o.V = 16, 8
    local limit = o.dtype and 2e-2 or 1e-5
    local worst = each:check(o).worst
    expect("check", worst < limit, worst)
  end
end
expect("differences", v:gradcheck { T = 10 }.worst < 1e-5)
expect("differences, serial", serial:gradcheck { T = 10 }.worst < 1e-5)
expect("road", not v.note and serial.note)
local x = v:random { T = 40, K = 16, V = 8, H = 2 }
same_alone(v, x)

x.save = true
local r, _, saved = v:forward(x)
local dy = { y = flin.randn(r.y.shape), loss = flin.randn(r.loss.shape) }
local late = v:backward { saved = saved, dy = dy }
x.save, x.dy = nil, dy
local now = v:backward(x)
for _, name in ipairs { "q", "k", "v", "g", "beta" } do
  expect("saved " .. name, (late[name] - now[name]):maxabs() == 0)
end

-- On the tests' driver, or a GPU.
local there, on = pcall(function () return x.q:to "cuda" end)
if there and on then
  local d = {}
  for name, t in pairs(x) do
    d[name] = name ~= "dy" and t:to "cuda" or nil
  end
  local got, want = v:forward(d), v:reference(d.q and {
    q = x.q, k = x.k, v = x.v, g = x.g, beta = x.beta })
  for name, t in pairs(want) do
    expect("cuda " .. name, (got[name]:to "cpu" - t):maxabs() < 1e-4)
  end
  d.dy = { y = dy.y:to "cuda", loss = dy.loss:to "cuda" }
  got = v:backward(d)
  for _, name in ipairs { "q", "k", "v", "g", "beta" } do
    expect("cuda d_" .. name,
           (got[name]:to "cpu" - now[name]):maxabs() < 1e-3)
  end
end

local function refuses(what, f, ...)
  local ok, message = pcall(f, ...)
  expect(what, not ok and tostring(message):find(what, 1, true), message)
end
refuses("has no y", define, function (x, s)
  return { S = s.S }, { z = x.q } end)
refuses("that is an input's name", define, function (x, s)
  return { S = s.S }, { y = x.q, k = x.k } end)
refuses("that is a state's name", define, function (x, s)
  return { S = s.S }, { y = x.q, S = x.k } end)
refuses("e is a number, not a value", define, function (x, s)
  return { S = s.S }, { y = x.q, e = 3 } end)
refuses("there is no result 'lost'", v.backward, v,
        { q = x.q, k = x.k, v = x.v, g = x.g, beta = x.beta,
          dy = { lost = dy.loss } })
refuses("forward: y is a table", flin.layer, {
  name = "l", input = { q = "t h k", k = "t h k", v = "t h v", g = "t h",
                        beta = "t h" },
  forward = function (x) return v(x) end })
x.dy, x.dstate = nil, nil
for i, name in ipairs { "y", "again", "err", "loss", "qk" } do
  local y, last = v:result(i):forward(x)
  local all, states = v:forward(x)
  expect("result " .. name, (y - all[name]):maxabs() < 1e-6)
  expect("its state", (last.S - states.S):maxabs() < 1e-6)
end
refuses("results 1 to 5, not 6", v.result, v, 6)
print(("%d passed, %d failed"):format(passed, failed))
