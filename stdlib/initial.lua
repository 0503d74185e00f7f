-- How constants and weights begin: functions for the field `initial` of a
-- variant or a layer, which takes plain numbers, too. Each is called for every
-- number: with at.h, the head from 1 on, at.k and so on, the place along other
-- axes (at.last is the last one's name), at.size.h, how many there are;
-- at.uniform(from, to) and at.normal(deviation) draw.

local initial = {}

local function number(what, x, usual)
  if x == nil then return usual end
  if type(x) ~= "number" then
    error(("initial.%s: a number is wanted, not a %s"):format(what, type(x)), 3)
  end
  return x
end

function initial.uniform(from, to)
  from, to = number("uniform", from, 0), number("uniform", to, 1)
  return function (at) return at.uniform(from, to) end
end

function initial.normal(deviation)
  deviation = number("normal", deviation, 1)
  return function (at) return at.normal(deviation) end
end

-- A_log of Mamba-2: the log of a rate that is uniform.
function initial.log_rates(from, to)
  from, to = number("log_rates", from, 1), number("log_rates", to, 16)
  return function (at) return math.log(at.uniform(from, to)) end
end

-- A step dt, even in logarithms.
function initial.log_uniform(from, to)
  from, to = number("log_uniform", from, 1e-3), number("log_uniform", to, 1e-1)
  return function (at)
    return math.exp(at.uniform(math.log(from), math.log(to)))
  end
end

-- The bias of dt there: its softplus is even in logarithms.
function initial.steps(from, to)
  from, to = number("steps", from, 1e-3), number("steps", to, 1e-1)
  return function (at)
    local dt = math.exp(at.uniform(math.log(from), math.log(to)))
    return dt + math.log(1 - math.exp(-dt))
  end
end

-- Angles a token of rotary embeddings: base^(-i / n) for i = 0 to n - 1.
function initial.frequencies(base)
  base = number("frequencies", base, 10000)
  return function (at)
    local last = at.last
    return base ^ (-(at[last] - 1) / at.size[last])
  end
end

-- 1 - (i / n)^power along the last axis, i from 0 on (RWKV's mixtures).
function initial.falling(power)
  power = number("falling", power, 1)
  return function (at)
    return 1 - ((at[at.last] - 1) / at.size[at.last]) ^ power
  end
end

-- Evenly from one number to another over the channels of all heads; and, over
-- those of each head, zigzag times z |z| for z from -1 to 1 (RWKV).
function initial.channels(o)
  local from, to = number("channels", o[1], 0), number("channels", o[2], 1)
  local zigzag = number("channels", o.zigzag, 0)
  return function (at)
    local n, i = at.size[at.last], at[at.last] - 1
    local all = at.size.h * n
    local z = n > 1 and 2 * i / (n - 1) - 1 or 0
    local along = all > 1 and ((at.h - 1) * n + i) / (all - 1) or 0
    return from + (to - from) * along + zigzag * z * math.abs(z)
  end
end

return initial
