-- v:gradcheck: gradients against differences of the float64 step.
--
-- For each argument x and random direction d, the derivative of
-- L = <dy, y> + <dstate, final state> along d by a central difference of
-- order 4 of v:reference, beside <gradient, d>. What is compared is float64
-- throughout but for v:backward's own float32. Where a step of the difference
-- may have passed a corner of L (of max, abs, where), shorter ones are taken.
-- Where L jumps, or is at a corner, there is no derivative to compare with:
-- along a count that the step compares with numbers (where a window's next
-- token goes), say.
local flin = ...

-- Errors: of a step its fourth power and 1e-16 / it.
local STEPS <const> = { 1e-3, 1e-4, 1e-5, 1e-6 }
local NEAR <const> = 1e-6               -- no shorter step is asked for

local function dot(a, b)
  return (a * b):sum()
end

-- L for arguments whose `name` (a state's: in initial) lies h away along d.
local function moved(v, call, where, name, d, h)
  local x = where[name]
  where[name] = x + d * h
  local y, state = v:reference(call)
  where[name] = x
  return y, state
end

local TURN <const> = 2 * math.pi

local function nearest_turn(x)
  return x - TURN * math.floor(x / TURN + 0.5)
end

-- A call's results by name: alone, y is a tensor.
local function named(y)
  return type(y) == "table" and y or { y = y }
end

-- L less what it is for `base`, the final state of arguments not moved: angles
-- are kept modulo 2 pi, so that they may differ by a turn.
local function loss(v, dy, dstate, base, y, state)
  local sum = 0
  for _, o in ipairs(v.outputs) do
    sum = sum + dot(named(y)[o.name], dy[o.name])
  end
  for _, s in ipairs(v.states) do
    local by = state[s.name] - base[s.name]
    sum = sum + dot(s.angle and by:map(nearest_turn) or by, dstate[s.name])
  end
  return sum
end

local function difference(f, h)
  return (8 * (f(h) - f(-h)) - (f(2 * h) - f(-2 * h))) / (12 * h)
end

local function normal_like(t)
  return flin.randn(t.shape, { dtype = "float64" })
end

-- Whether a step a thousand times shorter leaves as much of a change, of which
-- a thousandth is left where f is continuous; or of the difference between both
-- sides' slopes, where it has no corner: one that explains that the derivative
-- is `off`.
local function jumps(f, off)
  local from = f(0)
  local function change(h)
    return math.max(math.abs(f(h) - from), math.abs(f(-h) - from))
  end
  local function bend(h)
    return math.abs(f(h) + f(-h) - 2 * from) / h
  end
  local near, far = change(1e-9), change(1e-6)
  local noise = 1e-10 * math.max(1, math.abs(from))
  return near > far / 2 and near > noise
         or bend(1e-6) > math.max(bend(1e-3) / 2, off / 2, noise / 1e-6)
end

-- A random direction, as long as x where that is small: a step is to be one.
local function direction_of(x)
  local size = ((x * x):sum() / math.max(1, x.count)) ^ 0.5
  return normal_like(x) * (size > 0 and math.min(1, size) or 1)
end

local function in_double(tensors)
  local out = {}
  for name, t in pairs(tensors) do
    out[name] = t:to "float64"
  end
  return out
end

local meta = {}

function meta.__tostring(r)
  local lines = { ("%s: gradients against differences of the float64 step, "
                   .. "%d directions each"):format(r.name, r.directions),
                  ("  %-16s %10s %10s"):format("", "backward", "float64") }
  for _, row in ipairs(r.rows) do
    lines[#lines + 1] = row.jumps
      and ("  %-16s %21s"):format(row.name, "jumps here")
      or ("  %-16s %10.1e %10.1e"):format(row.name, row.backward or 0 / 0,
                                          row.reference)
  end
  lines[#lines + 1] = ("  %-16s %10.1e"):format("worst", r.worst)
  return table.concat(lines, "\n")
end

local function read(o)
  local option = { B = 1, T = 20, H = 1, seed = 1, directions = 2, size = 8 }
  for name, x in pairs(o or {}) do
    option[name] = x
  end
  local calls = { chunk = option.chunk, backend = option.backend }
  local directions = math.tointeger(option.directions)
  if not directions or directions < 1 then
    error("gradcheck: directions = " .. tostring(option.directions)
          .. ": a whole number from 1 is wanted", 3)
  end
  if not math.tointeger(option.seed) then
    error("gradcheck: seed = " .. tostring(option.seed)
          .. ": a whole number is wanted", 3)
  end
  option.chunk, option.backend, option.directions = nil, nil, nil
  return option, calls, directions
end

-- The derivatives of what `along` gives, by steps of h, beside both gradients.
-- Angles turn fully; else the greatest of |difference| over the directions is
-- what errors are relative to, so that a derivative near 0 is not one.
local function compare_by(h, along, dirs, gradient, exact)
  local scale, back, ref = 1e-12, 0, 0
  for i, d in ipairs(dirs) do
    local slope = difference(along[i], h)
    scale = math.max(scale, math.abs(slope))
    ref = math.max(ref, math.abs(dot(exact, d) - slope))
    back = gradient and math.max(back, math.abs(dot(gradient, d) - slope))
  end
  return { reference = ref / scale, backward = back and back / scale }, ref
end

local function compare(r, name, along, dirs, gradient, exact)
  local row, off
  for _, h in ipairs(STEPS) do
    local now, by = compare_by(h, along, dirs, gradient, exact)
    if not row or now.reference < row.reference then row, off = now, by end
    if row.reference <= NEAR then break end
  end
  row.name = name
  r.rows[#r.rows + 1] = row
  r[name] = row.backward or row.reference
  if row.reference > NEAR then
    for _, f in ipairs(along) do
      if jumps(f, off) then
        row.jumps = true
        return
      end
    end
  end
  -- What has cancelled is off by more, in float64, too: by 1e-12 where nothing
  -- has.
  local cancelled = math.min(math.max(row.reference / 1e-9, 1), 1e3)
  r.worst = math.max(r.worst, row.reference, (row.backward or 0) / cancelled)
end

return function (v, o)
  local option, calls, directions = read(o)
  if v.detaches then
    error("gradcheck: " .. v.name .. " calls flin.detach, and differences move "
          .. "what is detached, too\n  help: v:check compares its gradients "
          .. "with the float64 step's", 2)
  end
  flin.seed(option.seed)
  -- A state of other tokens: a maximum of these would be at a corner.
  option.seed = option.seed + 1
  local _, warm = v:forward(v:random(option))
  option.seed = option.seed - 1
  local inputs = v:random(option)
  local initial = in_double(warm)
  -- Differences leave the domains.
  local arguments = { initial_state = initial, validate = false }
  for name, t in pairs(inputs) do
    arguments[name] = t:to "float64"
  end
  local y, state = v:reference(arguments)
  local dy, dstate = {}, {}
  for _, o in ipairs(v.outputs) do
    dy[o.name] = normal_like(named(y)[o.name])
  end
  for _, s in ipairs(v.states) do       -- in order: what is drawn is the seed's
    dstate[s.name] = normal_like(state[s.name])
  end
  local back = { dy = dy, dstate = dstate, chunk = calls.chunk,
                 backend = calls.backend }
  for name, t in pairs(arguments) do
    back[name] = t
  end
  local gradient = v:backward(back)
  back.chunk, back.backend = nil, nil
  local exact = v:reference_backward(back)
  local r = setmetatable({ name = v.name, rows = {}, worst = 0,
                           directions = directions }, meta)
  local function check(where, name, label, got, truth)
    local dirs, along = {}, {}
    for i = 1, directions do
      local d = direction_of(where[name])
      dirs[i] = d
      along[i] = function (h)
        return loss(v, dy, dstate, state,
                    moved(v, arguments, where, name, d, h))
      end
    end
    compare(r, label, along, dirs, got:to "float64", truth)
  end
  for _, input in ipairs(v.inputs) do
    check(arguments, input.name, "d_" .. input.name, gradient[input.name],
          exact[input.name])
  end
  for _, s in ipairs(v.states) do
    check(initial, s.name, "d_initial_" .. s.name,
          gradient.initial_state[s.name], exact.initial_state[s.name])
  end
  return r
end
