-- Feature maps of flin.attention: the space in which keys meet queries.
--
-- A feature map is a table: input and state, the arguments and states it
-- brings; advance(x, s, new), once a token; and map(u, angle), which q and k
-- go through (angle: what advance returned, or the previous token's for a key
-- of the previous token).
local flin, options = ...
local exp, min, where, le = flin.exp, flin.min, flin.where, flin.le

local feature_map = {}

local function elementwise(name, f)
  feature_map[name] = function (o)
    options("feature_map." .. name, o, {})
    return { name = name, map = f }
  end
end

elementwise("identity", function (u) return u end)
elementwise("l2norm", function (u) return flin.l2norm(u, "k") end)
elementwise("relu", function (u) return flin.relu(u) end)
elementwise("silu", function (u) return flin.silu(u) end)
elementwise("elu1", function (u)
  return where(le(u, 0), exp(min(u, 0)), u + 1)
end)

-- 1 + q.k + (q.k)^2 / 2, the head of exp's series: states S0 and S2 beside S;
-- S2, K times the size of S, runs token by token (Based, Arora et al., 2024).
function feature_map.taylor(o)
  options("feature_map.taylor", o, {})
  return { name = "taylor", taylor = true,
           map = function (u) return u end }
end

-- Rotates pairs of channels by a running sum of theta: fixed for each head,
-- or given with each token.
function feature_map.rope(o)
  o = options("feature_map.rope", o, { data_dependent = { false, true } })
  return {
    name = "rope", state = { phi = "p : angle" },
    input = { theta = o.data_dependent and "t p : angle" or "p : angle" },
    initial = {
      theta = not o.data_dependent and flin.initial.frequencies() or nil,
    },
    advance = function (x, s, new)
      new.phi = s.phi + x.theta
      return new.phi, s.phi
    end,
    map = function (u, phi) return flin.rotate(u, phi, "k") end,
  }
end

-- A function of yours, from a value with axis k to one with axis k.
function feature_map.map(f)
  if type(f) ~= "function" then
    error("feature_map.map: a function of a value is wanted, not a "
          .. type(f), 2)
  end
  return { name = "map", map = function (u)
    local features = f(u)
    flin.size(features, "k")    -- an error where there is no such axis
    return features
  end }
end

return feature_map
