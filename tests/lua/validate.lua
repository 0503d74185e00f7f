-- validate = true: what breaks its domain, and what is not finite, is named
-- with its first token, head and value; and why. `flin validate.lua cuda` does
-- the same on tensors of a GPU.
local flin = require "flin"
local gpu = arg[1] == "cuda"
local passed, failed = 0, 0

local function check(name, ok, why)
  if ok then
    passed = passed + 1
  else
    failed = failed + 1
    print("FAIL " .. name .. ": " .. tostring(why))
  end
end

local function placed(call)
  local there = {}
  for name, x in pairs(call) do
    there[name] = gpu and flin.is_tensor(x) and x:to "cuda" or x
  end
  return there
end

-- The call fails, and its message has all of these texts.
local function refused(name, v, method, call, ...)
  local ok, why = pcall(v[method], v, placed(call))
  local all = not ok
  for _, text in ipairs { ... } do
    all = all and why:find(text, 1, true)
  end
  check(name, all, ok and "taken" or why .. "\nwanted: "
        .. table.concat({ ... }, " | "))
end

local function taken(name, v, method, call)
  check(name, pcall(v[method], v, placed(call)))
end

local function with(t, more)
  local out = {}
  for k, x in pairs(t) do out[k] = x end
  for k, x in pairs(more) do out[k] = x end
  return out
end

-- ---- a value of each domain, in its place ----

local DOMAINS <const> = {
  normal = { good = { -3, 0, 1e30 }, bad = { 1 / 0, -1 / 0, 0 / 0 },
             wanted = "not finite" },
  angle = { good = { -3, 0, 7 }, bad = { 1 / 0, 0 / 0 },
            wanted = "not finite" },
  log_decay = { good = { -1 / 0, -3, 0 }, bad = { 0.5, 1 / 0, 0 / 0 },
                wanted = "declared log_decay, at most 0" },
  unit = { good = { 0, 0.5, 1 }, bad = { -0.25, 1.5, 0 / 0 },
           wanted = "declared unit, from 0 to 1" },
  positive = { good = { 0, 7 }, bad = { -0.25, 1 / 0, 0 / 0 },
               wanted = "declared positive, at least 0" },
  unit_norm = { good = { 0, 0.5 }, bad = { 2, 1 / 0, 0 / 0 },
                wanted = "declared unit_norm, of length 1 at most" },
}

-- x is an input of the domain with axes, or without; w a constant of a head.
local function variant(domain)
  return flin.variant {
    name = "holds", state = { S = "k v" },
    input = { v = "t v", x = "t k : " .. domain, g = "t : " .. domain,
              w = "k : " .. domain },
    step = function (x, s)
      local function nothing(a)         -- next to: -inf times 0 were none
        return 1e-20 * flin.max(flin.min(a, 1), -1)
      end
      local S = 0.5 * s.S + flin.outer(nothing(x.w) + nothing(x.x),
                                       x.v + nothing(x.g))
      return { S = S }, flin.sum(S, "k")
    end,
  }
end

local B <const>, T <const>, H <const>, K <const> = 2, 70, 3, 20

local function fill(x, at, value)       -- at: from 1
  for axis, i in ipairs(at) do
    x = x:narrow(axis, i, 1)
  end
  x:fill(value)
end

local function number(x)
  return x ~= x and "nan" or ("%.6g"):format(x)
end

flin.seed(5)
local function random(n)
  return 1 + math.floor(flin.rand { 1 }:totable()[1] * n)
end

for name, domain in pairs(DOMAINS) do
  local v = variant(name)
  for _, dtype in ipairs { "float32", "bfloat16", "float16" } do
    local function zeros(...)
      return flin.zeros({ ... }, { dtype = dtype })
    end
    local call = { v = zeros(B, T, H, 5), x = zeros(B, T, H, K),
                   g = zeros(B, T, H), w = flin.zeros(H, K), validate = true }
    for _, good in ipairs(domain.good) do
      local near = good == 1e30 and dtype == "float16" and 6e4 or good
      local x = zeros(B, T, H, K)
      fill(x, { random(B), random(T), random(H), random(K) }, near)
      taken(name .. " takes " .. near, v, "forward", with(call, { x = x }))
    end
    for _, bad in ipairs(domain.bad) do
      local x, g, w = zeros(B, T, H, K), zeros(B, T, H), flin.zeros(H, K)
      local b, t, h, k = random(B), random(T - 1), random(H), random(K)
      local place = ("at token %d, head %d of batch entry %d"):format(t - 1,
                    h - 1, b - 1)
      fill(x, { b, t, h, k }, bad)
      fill(x, { random(B), t + 1, random(H), random(K) }, bad)  -- later
      refused(name .. " x", v, "forward", with(call, { x = x }),
              "x is " .. domain.wanted, place, name ~= "unit_norm"
              and ", k " .. k - 1 or "", bad == bad and bad < 1e9
              and bad > -1e9 and number(bad) or "")
      if name ~= "unit_norm" then
        fill(g, { b, t, h }, bad)
        refused(name .. " g", v, "forward", with(call, { g = g }),
                "g is " .. domain.wanted, place)
      end
      fill(w, { h, k }, bad)
      refused(name .. " w", v, "forward", with(call, { w = w }),
              "w is " .. domain.wanted, " in head " .. h - 1)
      if bad == bad and bad < 1e9 then
        check(name .. " not asked", pcall(v.forward, v,
              placed(with(call, { w = w, validate = false }))))
      end
    end
  end
end

-- ---- what else a call has ----

local gla = flin.stdlib.gla
local call = gla:random { B = 2, T = 40, H = 2, K = 8, V = 8 }
call.validate = true
taken("a sound call", gla, "forward", call)
local sigmoid = with(call, { g = flin.rand { 2, 40, 2, 8 } })
for _, method in ipairs { "forward", "backward" } do
  local c = with(sigmoid, method == "backward" and { dy = call.v } or {})
  refused("sigmoids as gates, " .. method, gla, method, c,
          method .. ": g is declared log_decay", "token 0, head 0",
          "logsigmoid")
end
for _, method in ipairs { "reference", "reference_backward" } do
  if not gpu then
    refused("sigmoids as gates, " .. method, gla, method, with(sigmoid,
            { dy = method ~= "reference" and call.v or nil }),
            method .. ": g is declared log_decay", "token 0, head 0")
  end
end
local token = {}
for name, x in pairs(sigmoid) do
  token[name] = name == "validate" or x:narrow(2, 3, 1)
end
refused("of one token", gla, "step", token, "step: g is declared log_decay",
        "token 0, head 0")
refused("saving", gla, "forward", with(sigmoid, { save = true }),
        "declared log_decay")
local S = flin.zeros(2, 2, 8, 8)
fill(S, { 2, 1, 3, 4 }, 0 / 0)
S = gpu and S:to "cuda" or S
refused("an initial state", gla, "forward",
        with(call, { initial_state = { S = S } }), "the initial state S is not "
        .. "finite: nan in head 0 of sequence 1, k 2, v 3")
local dy = flin.zeros(2, 40, 2, 8)
fill(dy, { 1, 9, 1, 1 }, 1 / 0)
refused("dy", gla, "backward", with(call, { dy = dy }),
        "dy is not finite: inf at token 8, head 0 of batch entry 0")

-- ---- results, and why ----

local delta = flin.variant {
  name = "free_delta", state = { S = "k v" },
  input = { q = "t k", k = "t k", v = "t v", beta = "t : unit" },
  step = function (x, s)
    local S = s.S + flin.outer(x.beta * x.k, x.v - flin.dot(x.k, s.S))
    return { S = S }, flin.dot(x.q, S)
  end,
}
call = delta:random { B = 2, T = 400, H = 2, K = 16, V = 8 }
call.validate = true
refused("keys of any length", delta, "forward", call, "y is not finite",
        "the float64 step ", "keys are not of unit length: |k|^2 beta reached ")
refused("their gradients", delta, "backward", with(call, { dy = call.v }),
        "the gradient of", "|k|^2 beta reached ")
local short = delta:random { B = 1, T = 5, H = 2, K = 4, V = 4 }
short.k = short.k:unit()
fill(short.k, { 1, 4, 2 }, 2.0)
fill(short.beta, { 1, 4, 2 }, 0.5)
taken("finite", delta, "forward", with(short, { validate = true }))
refused("what may grow", delta, "forward",
        with(short, { validate = "growth" }),
        "keys are not of unit length: |k|^2 beta reached 8 at token 3")
short.k, short.beta = short.k:unit(), short.beta
fill(short.beta, { 1, 3, 1 }, 1)
taken("what may not", delta, "forward", with(short, { validate = "growth" }))

local grows = flin.variant {
  name = "grows", input = { k = "t k", v = "t v", g = "t" },
  state = { S = "k v" },
  step = function (x, s)
    local S = flin.exp(x.g) * s.S + flin.outer(x.k, x.v)
    return { S = S }, flin.dot(x.k, S)
  end,
}
call = grows:random { B = 1, T = 30, H = 1, K = 4, V = 4 }
call.g = flin.zeros(1, 30, 1)
fill(call.g, { 1, 7, 1 }, 100)
call.validate = true
refused("a decay of more than 1", grows, "forward", call,
        "y is not finite", "at token 6, head 0 of batch entry 0, v ",
        "'exp' in exp(g) (", "S grows: its decay exp(g) reached 2.69e+43 at "
        .. "token 6")
call.cu_seqlens = { 0, 3, 20, 20, 30 }
refused("in the second of packed sequences", grows, "forward", call,
        "at token 6, head 0", "its decay exp(g) reached 2.69e+43 at token 6")
call.g = flin.full({ 1, 30, 1 }, -0.5)
taken("sound again", grows, "forward", call)

-- Every variant of the library on inputs of its domains, by v:check, too. What
-- two keys of the caller's erase may grow.
local free <const> = { iplr = true, dplr = true }
for _, name in ipairs(flin.stdlib_names) do
  local v = flin.stdlib[name]
  if not gpu then
    local inputs = v:random { B = 1, T = 70, H = 2, K = 8, V = 8 }
    inputs.validate = "growth"
    if free[name] then
      refused(name, v, "forward", inputs, "S grows: -dot(a, b) reached")
    else
      taken(name, v, "forward", inputs)
    end
    check(name .. ": no trouble", not v:check { T = 20, size = 8, H = 1,
          backward = false }.trouble)
  end
end

-- Pieces that do not go together say so.
if not gpu then
  for _, map in ipairs { "elu1", "identity" } do
    for _, transition in ipairs { "delta_rule", "delta_product" } do
      local v = flin.attention { features = flin.feature_map[map](),
                                 transition = flin.transition[transition]() }
      local trouble = v:check { T = 200, backward = false }.trouble
      check(map .. " " .. transition, map == "identity" and not trouble
            or map == "elu1" and trouble
               and trouble:find "keys are not of unit length: .* reached",
            trouble)
    end
  end
  local D, F, T = flin.decay, flin.feature_map, flin.transition
  local endless = 0
  for i, decay in ipairs { D.none(), D.fixed(), D.exponential(),
      D.exponential { discretization = "trapezoidal" }, D.gated(),
      D.gated { per = "key" }, D.max_stabilized() } do
    for j, features in ipairs { F.identity(), F.relu(), F.silu(), F.elu1(),
        F.taylor(), F.rope { data_dependent = true },
        F.map(function (x) return 2 * x end) } do
      for k, transition in ipairs { T.one_step_gd(), T.delta_rule(),
          T.delta_rule { mimo_rank = 2 }, T.delta_product { steps = 2 },
          T.dplr(), T.preconditioned_gd() } do
        local ok, v = pcall(flin.attention, { decay = decay,
                            features = features, transition = transition })
        local r = ok and v:check { T = 200, B = 1, H = 1, size = 8,
                                   backward = false }
        if r and math.max(r.y, r.state) == 1 / 0 then
          endless = endless + 1
          check(("%d %d %d"):format(i, j, k), r.trouble
                and (r.trouble:find "keys are not of unit length"
                     or r.trouble:find " grows: "), r.trouble)
        end
      end
    end
  end
  check("some diverge", endless > 5, endless)
  local r = delta:check { T = 40 }
  check("v:check's text", tostring(r):find "worst .*\nkeys are not of unit"
        , tostring(r))
end

-- ---- states updated in place are what they were ----

do
  local v = flin.stdlib.simple_gla
  local shape <const> = { 2, 3, 4, 5 }
  local function step(name, inputs, number, ...)
    local S = flin.full(shape, number)
    S = gpu and S:to "cuda" or S
    local call = with(v:random { B = 2, T = 1, H = 3, K = 4, V = 5 },
                      { state = { S = S }, inplace = true, validate = true })
    for input, x in pairs(inputs) do call[input] = x end
    refused(name, v, "step", call, ...)
    local left = (S:to "cpu" - flin.full(shape, number)):maxabs()
    check(name .. ": the state", left == 0, left)
  end
  step("a domain", { g = flin.full({ 2, 1, 3 }, 0.5) }, 1,
       "g is declared log_decay, at most 0, but is 0.5")
  step("a result that is too large", { g = flin.full({ 2, 1, 3 }, 0),
                                       k = flin.full({ 2, 1, 3, 4 }, 1e30),
                                       v = flin.full({ 2, 1, 3, 5 }, 1e30) },
       1, "is not finite: ", "the float64 step leaves float32's numbers",
       "head 0")
  -- what is good is written
  local function ones()
    local S = flin.full(shape, 1)
    return gpu and S:to "cuda" or S
  end
  local S = ones()
  local call = placed(with(v:random { B = 2, T = 1, H = 3, K = 4, V = 5 },
                           { state = { S = S }, inplace = true }))
  local y, left = v:step(with(call, { state = { S = ones() },
                                      inplace = false }))
  call.validate = true
  v:step(call)
  check("a good step is written", (S:to "cpu" - left.S:to "cpu"):maxabs() == 0
        and (S:to "cpu" - flin.full(shape, 1)):maxabs() > 0, y)
end

-- ---- however a tensor lies ----

-- The same message for x as it is and for x as it lies elsewhere: its entries
-- in another order, apart, not aligned, among others that are no numbers.
do
  local ways = {
    as_is = function (x) return x end,
    ["heads first"] = function (x)
      return x:transpose(2, 3):contiguous(), { 2, 3 }
    end,
    ["entries first"] = function (x)
      return x:transpose(2, 4):contiguous(), { 2, 4 }
    end,
    apart = function (x)
      local wide = flin.full({ B, T, H, 2 * x.shape[4] }, 0 / 0):to(x.dtype)
      wide:narrow(4, 1, x.shape[4]):copy(x)
      return wide, nil, 1
    end,
    ["from the second on"] = function (x)
      local wide = flin.full({ B, T, H, 1 + x.shape[4] }, 0 / 0):to(x.dtype)
      wide:narrow(4, 2, x.shape[4]):copy(x)
      return wide, nil, 2
    end,
  }
  local function message(v, call)
    local ok, why = pcall(v.forward, v, call)
    return ok and "taken" or why
  end
  for _, domain in ipairs { "normal", "log_decay", "unit_norm" } do
    local v = variant(domain)
    for _, size in ipairs { 16, 20, 200 } do
      for _, dtype in ipairs { "float32", "bfloat16", "float16" } do
        local x = flin.zeros({ B, T, H, size }, { dtype = dtype })
        local call = { v = flin.zeros({ B, T, H, 5 }, { dtype = dtype }),
                       g = flin.zeros({ B, T, H }, { dtype = dtype }),
                       w = flin.zeros(H, size), validate = true, x = x }
        for _ = 1, 3 do
          fill(x, { random(B), random(T), random(H), random(size) }, 2)
          fill(x, { random(B), random(T), random(H), random(size) }, 0 / 0)
        end
        local want = message(v, call)
        for name, lay in pairs(ways) do
          local there, turned, from = lay(x)
          there = gpu and there:to "cuda" or there
          there = turned and there:transpose(turned[1], turned[2])
            or from and there:narrow(4, from, size) or there
          local got = message(v, with(placed(with(call, { x = false })),
                                      { x = there }))
          check(("%s of %d, %s, %s"):format(domain, size, dtype, name),
                want ~= "taken" and got == want, got .. "\nwanted: " .. want)
        end
      end
    end
  end
end

print(("%d passed, %d failed"):format(passed, failed))
os.exit(failed == 0 and 0 or 1)
