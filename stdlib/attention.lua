-- flin.attention: a variant composed of a decay, features and a transition.
--
-- Generated inputs:
--   always                          q "t k", k "t k", v "t v"
--   decay.fixed                     g ""                   (log of the decay)
--   decay.gated                     g "t", or "t k" for per = "key"
--   decay.exponential               A_log "", dt "t" ("" if not data_dependent)
--   decay.max_stabilized            i "t", f "t"           (before activation)
--   discretization = "trapezoidal"  lambda "t"             (in (0, 1))
--   feature_map.rope                theta "p", or "t p" if data_dependent
--   transition.delta_rule           beta "t"
--   transition.delta_product        beta "t n", k "t n k", v "t n v"
--   transition.dplr                 kappa "t k", a "t k"
--   mimo_rank = R > 1               k "t r k", v "t r v", beta "t r"
-- States: S "k v"; phi "p" (rope), A "k" (preconditioned_gd), m "" and n "k"
-- (max_stabilized), S0 "v" and S2 "k d v" (taylor).
local flin, options = ...
local exp, abs, max, rsqrt = flin.exp, flin.abs, flin.max, flin.rsqrt
local dot, outer, prev = flin.dot, flin.outer, flin.prev

-- At the line of the caller of flin.attention, whose helpers these are.
local function refuse(...)
  error("flin.attention: " .. string.format(...), 4)
end

-- Combinations without a meaning, each with the reason.
local function check(decay, taylor, transition, scale)
  local d, t = decay.name, transition.name
  if scale and type(scale) ~= "number" then
    refuse("scale is a %s: the number that multiplies q is wanted",
           type(scale))
  elseif decay.trapezoidal and transition.error_feedback then
    refuse("the trapezoidal rule cannot go with %s: it writes the previous "
           .. "token again, whose error was of a state that is gone\n  help: "
           .. "use transition.one_step_gd or preconditioned_gd", t)
  elseif decay.normalised and t ~= "one_step_gd" then
    refuse("%s cannot go with %s: it divides y by the sum of the weights of "
           .. "what was written, which only a plain sum has\n  help: use "
           .. "decay.gated, or transition.one_step_gd", d, t)
  elseif decay.normalised and transition.extra then
    refuse("%s cannot go with mimo_rank: its normaliser sums one key a token",
           d)
  elseif taylor and (t ~= "one_step_gd" or transition.extra) then
    refuse("feature_map.taylor keeps three states and can only sum into "
           .. "them, one key a token\n  help: use transition.one_step_gd "
           .. "without mimo_rank, not %s", t)
  elseif taylor and (decay.normalised or decay.per == "key") then
    refuse("feature_map.taylor has features of two keys, which %s cannot %s",
           d, decay.normalised and "normalise" or "gate per key")
  end
end

-- What each piece does, by the name of its function.
local acts = { decay = "gate", feature_map = "map", transition = "update" }

local function piece(value, what, module, default)
  if value == nil then
    return default
  elseif type(value) ~= "table" or not value.name
         or not value[acts[module]] then
    local pieces, meant = flin[module], default.name
    for name, make in pairs(pieces) do
      meant = (value == name or value == make) and name or meant
    end
    refuse("%s is %s: what an entry of flin.%s returns is wanted\n  help: "
           .. "%s = flin.%s.%s()", what, type(value) == "string"
           and '"' .. value .. '"' or "a " .. type(value), module, what,
           module, meant)
  end
  return value
end

-- The maps that q and k go through, in order: one given, or a list.
local function as_list(features)
  if type(features) == "table" and not features.name then
    return features
  end
  return { features }
end

local function as_map(feature)
  if type(feature) ~= "function" then
    return feature
  end
  for name, entry in pairs(flin.feature_map) do
    if feature == entry then
      refuse("features: flin.feature_map.%s is to be called: %s()", name, name)
    end
  end
  return flin.feature_map.map(feature)
end

local function merge(into, from)
  for name, axes in pairs(from or {}) do
    into[name] = axes
  end
end

local function normalise(v, q, n, m)
  return v / (max(abs(dot(q, n)), exp(-m)) + 1e-6)
end

-- The second-order states of taylor beside S; returns what they add to y.
local function taylor_sums(D, w, q, k, v, s, new, earlier)
  local k2 = function (u) return outer(u, flin.rename(u, "k", "d")) end
  new.S0 = (D and D * s.S0 or s.S0) + (w and w * v or v)
  new.S2 = (D and D * s.S2 or s.S2) + outer(w and w * k2(k) or k2(k), v)
  if earlier.k0 then
    new.S0 = new.S0 + earlier.w0 * earlier.v0
    new.S2 = new.S2 + outer(earlier.w0 * k2(earlier.k0), earlier.v0)
  end
  return new.S0 + 0.5 * dot(k2(q), new.S2)
end

local function step_of(decay, features, taylor, transition, scale)
  return function (x, s)
    local new, now, before = {}, {}, {}
    for i, f in ipairs(features) do
      if f.advance then
        now[i], before[i] = f.advance(x, s, new)
      end
    end
    local function map(u, angle)
      for i, f in ipairs(features) do
        u = f.map(u, angle[i])
      end
      return u
    end
    local D, w = decay.gate(x, s, new)
    local c = { x = x, s = s, new = new, D = D, w = w, v = x.v,
                S = D and D * s.S or s.S, k = map(x.k, now) }
    if decay.trapezoidal then
      c.k0, c.v0 = map(prev(x.k), before), prev(x.v)
      c.w0 = (1 - x.lambda) * D * (w or 1)
      c.w = x.lambda * (w or 1)
    end
    local q = map(x.q, now) * (scale or rsqrt(flin.size(x.q, "k")))
    new.S = transition.update(c)
    local y = dot(q, new.S)
    if taylor then
      y = y + taylor_sums(D, c.w, q, c.k, c.v, s, new, c)
    elseif decay.normalised then
      new.n = D * s.n + w * c.k
      y = normalise(y, q, new.n, new.m)
    end
    return new, y
  end
end

-- scale multiplies q; nil: K^(-1/2). mode: as flin.variant's.
return function (o)
  o = options("flin.attention", o, {
    decay = "any", features = "any", transition = "any", scale = "any",
    mode = "any", name = "attention",
  })
  local decay = piece(o.decay, "decay", "decay", flin.decay.none())
  local transition = piece(o.transition, "transition", "transition",
                           flin.transition.one_step_gd())
  local features, taylor = {}, false
  for i, f in ipairs(as_list(o.features)) do
    features[i] = piece(as_map(f), "features", "feature_map",
                        flin.feature_map.identity())
    taylor = taylor or features[i].taylor
  end
  check(decay, taylor, transition, o.scale)
  local extra = transition.extra or ""
  local unit = transition.error_feedback and " : unit_norm" or ""
  local input = { q = "t k", k = "t " .. extra .. "k" .. unit,
                  v = "t " .. extra .. "v" }
  local state = { S = "k v" }
  if taylor then
    merge(state, { S0 = "v", S2 = "k d v" })
  elseif decay.normalised then
    state.n = "k"
  end
  local initial = {}
  for _, p in ipairs { decay, transition, table.unpack(features) } do
    merge(input, p.input)
    merge(state, p.state)
    merge(initial, p.initial)
  end
  return flin.variant {
    name = o.name, axes = transition.axes, input = input, state = state,
    initial = initial, mode = o.mode,
    step = step_of(decay, features, taylor, transition, o.scale),
  }
end
