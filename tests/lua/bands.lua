-- Masks that look back, by how far: bands, what begins late, what reads earlier
-- tokens. All that go forward go backward, as the plain function says.
--   bands.lua all    -- each window with each form; else a few of them
local flin = require "flin"
local exp = flin.exp

local count = require "support.count"
local check <const> = count.check

local windows <const> = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 16, 24, 32,
                          64, 128 }

-- What j alone weighs: the product of so many columns.
local function column(p, j, n)
  local x = 1
  for c = 1, n do x = x * p["u" .. c][j] end
  return x
end

-- A mask of window W and n columns.
local forms <const> = {
  { "a window", function (W, n)
    return function (i, j, p)
      if i < j or i - j >= W then return 0 end
      return p.w[i] * column(p, j, n)
    end
  end },
  { "a window that decays", function (W, n)
    return function (i, j, p)
      if i < j or i - j >= W then return 0 end
      return exp(p.g_cumsum[i] - p.g_cumsum[j]) * column(p, j, n)
    end
  end },
  { "a window beside a decay", function (W, n)
    return function (i, j, p)
      if i < j then return 0 end
      if i - j < W then return p.w[i] * column(p, j, n) / (i - j + 1) end
      return exp(p.g_cumsum[i] - p.g_cumsum[j])
    end
  end },
  { "a late start", function (W, n)
    return function (i, j, p)
      if i - j < W - 1 then return 0 end
      return column(p, j, n) * exp((p.g_cumsum[i] - p.g_cumsum[j]) / W)
    end
  end },
}

-- The first tokens, whose weights are their own, count as columns, too.
forms[5] = { "a window and the first tokens", function (W, n)
  return function (i, j, p)
    if i < j then return 0 end
    if j < 1 + n then return p.w[i] end
    if i - j >= W then return 0 end
    return exp(p.g_cumsum[i] - p.g_cumsum[j]) * column(p, j, n)
  end
end }

local T <const>, K <const>, V <const> = 150, 3, 2

local function distance(x, want)
  local d = x:to("float64") - want
  return math.sqrt((d * d):sum() / ((want * want):sum() + 1e-40))
end

local function to_double(x)
  local y = {}
  for name, t in pairs(x) do y[name] = t:to("float64") end
  return y
end

local forward, backward, asked = 0, 0, 0
local function try(name, mask, seed)
  asked = asked + 1
  local ok, v = pcall(flin.variant, { mask = mask })
  check(name .. " is a mask", ok, v)
  if not ok then return end
  local x = v:random { B = 1, H = 1, T = T, K = K, V = V, seed = seed }
  local want = to_double(x)
  local done, y = pcall(v.forward, v, x)
  local e = done and distance(y, v:reference(want)) or tostring(y)
  -- float32, as for every variant
  check(name .. " forward", done and e <= 1e-5, e)
  if not done then return end
  forward = forward + 1
  x.dy = flin.randn({ 1, T, 1, V }, { seed = seed })
  want.dy = x.dy:to("float64")
  local back, grad = pcall(v.backward, v, x)
  check(name .. " backward", back, tostring(grad))
  if not back then return end
  backward = backward + 1
  for input, g in pairs(v:reference_backward(want)) do
    if input ~= "initial_state" then
      e = distance(grad[input], g)
      check(name .. " d_" .. input, e <= 1e-4, e)
    end
  end
end

local all <const> = arg[1] == "all"
for w, W in ipairs(windows) do
  for n = 0, 3 do
    for f, form in ipairs(forms) do
      local few = W >= 7 and (w + n + f) % 9 == 0
      if all or few then
        try(("%s of %d, %d columns"):format(form[1], W, n), form[2](W, n), w)
      end
    end
  end
end
check("every mask goes forward", forward == asked, forward)
check("every mask that goes forward goes backward", backward == forward,
      backward)
if all then
  print(("%d masks, forward %d, backward %d"):format(asked, forward, backward))
end

-- ---- from states ----

-- What a call begins with, its gradients included: after more tokens than the
-- mask looks back, whose states are what v:check draws, and after fewer. 5e-5:
-- exponents of some tens, the sums over a late start's gates, are rounded.
local function from_states(name, v, seed)
  local e = v:check { B = 1, H = 1, T = 40, K = K, V = V, seed = seed }
  check(name .. " from states", e.worst <= 5e-5, e)
end

for seed = 1, all and 20 or 2 do
  for w = 1, all and #windows or 4 do
    local W = windows[all and w or (seed * 5 + w * 3) % #windows + 1]
    for _, form in ipairs(forms) do
      from_states(("%s of %d"):format(form[1], W),
                  flin.variant { mask = form[2](W, 1) }, seed)
    end
    from_states(("nothing before %d"):format(W),
                flin.variant { mask = function (i, j, p)
      if i - j < W then return 0 end
      return p.b[j] * exp(p.g_cumsum[i] - p.g_cumsum[j])
    end }, seed)
  end
end

-- Of S nothing is there yet, and gates of tokens before the call have next to
-- no gradient: what float32 leaves of the sum over the call's own.
for n = 1, 40, 13 do
  local v = flin.variant { mask = function (i, j, p)
    if i - j < 15 then return 0 end
    return p.b[j] * exp(p.g_cumsum[i] - p.g_cumsum[j])
  end }
  local before = v:random { B = 1, H = 1, T = n, K = K, V = V, seed = n }
  local x = v:random { B = 1, H = 1, T = 40, K = K, V = V, seed = n + 1 }
  local _, state = v:forward(before)
  local want = to_double(x)
  x.dy = flin.randn({ 1, 40, 1, V }, { seed = n })
  x.initial_state, x.dstate, want.initial_state = state, {}, to_double(state)
  for s, t in pairs(state) do
    x.dstate[s] = flin.randn(t.shape, { seed = n + #s })
  end
  want.dy, want.dstate = x.dy:to("float64"), to_double(x.dstate)
  local grad, true_grad = v:backward(x), v:reference_backward(want)
  local size = true_grad.g:maxabs()
  for s, t in pairs(true_grad.initial_state) do
    local off = (grad.initial_state[s]:to("float64") - t):maxabs()
    local of = s == "band_g" and math.max(size, t:maxabs()) or t:maxabs()
    check(("after %d tokens, d_%s of the first"):format(n, s),
          off <= 1e-5 * of, off / of)
  end
end

-- ---- the furthest ----

local function refused(name, mask, ...)
  local ok, err = pcall(flin.variant, { mask = mask })
  check(name .. " is refused", not ok, "it is not")
  for _, text in ipairs { ... } do
    check(name .. " says " .. text,
          tostring(err):find(text, 1, true), err)
  end
end

refused("a window of 4098", function (i, j, p)
  if i < j or i - j > 4097 then return 0 end
  return p.u[j]
end, "i - j up to 4097", "4096 tokens at most")

refused("a start at 4097", function (i, j, p)
  if i - j < 4097 then return 0 end
  return p.u[j]
end, "begins at i - j = 4097", "4096 tokens back at most")

refused("a token 4097 back", function (i, j, p)
  if i < j then return 0 end
  return p.u[j - 4097]
end, "4097 tokens back", "4096 tokens at most")

-- One number in messages, pages and the help.
for _, path in ipairs { "docs/masks.md", "lang/lua/builtins.lua" } do
  local f <close> = assert(io.open(path))
  local said = f:read "a":gsub("%s+", " ")
  check(path .. " says how far",
        said:find("look back 4096 tokens", 1, true), "it does not")
end

-- ---- what is out of the band is not looked at ----

for _, W in ipairs { 5, 40 } do
  try("infinite out of a band of " .. W, function (i, j, p)
    if i <= j or i - j > W then return 0 end
    return p.w[i] / (i - j) / (W + 1 - i + j)
  end, W)
end

-- ---- gates that leave nothing ----

do
  local v = flin.variant { mask = forms[2][2](40, 1),
                           input = { g = "t : log_decay", u1 = "t" } }
  local x = v:random { B = 1, H = 1, T = T, K = K, V = V, seed = 5 }
  for n, g in ipairs { -1e9, -50, -1e3, -1e6 } do
    x.g[{ 1, 30 * n, 1 }] = g
  end
  local want = to_double(x)
  local e = distance(v:forward(x), v:reference(want))
  check("walls in a band", e <= 1e-5, e)
  x.dy = flin.randn({ 1, T, 1, V }, { seed = 6 })
  want.dy = x.dy:to("float64")
  local grad = v:backward(x)
  for input, g in pairs(v:reference_backward(want)) do
    if input ~= "initial_state" then
      e = distance(grad[input], g)
      check("walls in a band, d_" .. input, e <= 1e-4, e)
    end
  end
end

count.finish()
