-- v:gradcheck: gradients against differences of the float64 step.
--
-- For each argument x and random direction d, the derivative of
-- L = <dy, y> + <dstate, final state> along d by a central difference of
-- order 4 of v:reference, beside <gradient, d>. What is compared is float64
-- throughout but for v:backward's own float32. Where L jumps there is no
-- derivative to compare with: along a count that the step compares with numbers
-- (where a window's next token goes), say.
local flin = ...

local STEP <const> = 1e-3               -- error: STEP^4 and 1e-16 / STEP

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

local function difference(f)
  return (8 * (f(STEP) - f(-STEP)) - (f(2 * STEP) - f(-2 * STEP)))
         / (12 * STEP)
end

local function normal_like(t)
  return flin.randn(t.shape, { dtype = "float64" })
end

-- Whether a step a thousand times shorter leaves as much of a change: of what
-- is continuous it leaves a thousandth.
local function jumps(f)
  local from = f(0)
  local function change(h)
    return math.max(math.abs(f(h) - from), math.abs(f(-h) - from))
  end
  local near, far = change(STEP * 1e-6), change(STEP * 1e-3)
  return near > far / 2 and near > 1e-10 * math.max(1, math.abs(from))
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

-- Angles turn fully; else the greatest of |difference| over the directions is
-- what errors are relative to, so that a derivative near 0 is not one.
local function compare(r, name, dirs, slope, gradient, exact, has_jump)
  local scale, back, ref = 1e-12, 0, 0
  for i, d in ipairs(dirs) do
    scale = math.max(scale, math.abs(slope[i]))
    ref = math.max(ref, math.abs(dot(exact, d) - slope[i]))
    back = gradient and math.max(back, math.abs(dot(gradient, d) - slope[i]))
  end
  local row = { name = name, reference = ref / scale,
                backward = back and back / scale }
  r.rows[#r.rows + 1] = row
  r[name] = row.backward or row.reference
  if row.reference > 1e-6 and has_jump() then
    row.jumps = true
    return
  end
  -- What has cancelled is off by more, in float64, too: by 1e-12 where nothing
  -- has.
  local cancelled = math.min(math.max(row.reference / 1e-9, 1), 1e3)
  r.worst = math.max(r.worst, row.reference, (row.backward or 0) / cancelled)
end

return function (v, o)
  local option, calls, directions = read(o)
  flin.seed(option.seed)
  local inputs = v:random(option)
  local _, warm = v:forward(inputs)
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
    local dirs, slope, along = {}, {}, {}
    for i = 1, directions do
      local d = direction_of(where[name])
      dirs[i] = d
      along[i] = function (h)
        return loss(v, dy, dstate, state,
                    moved(v, arguments, where, name, d, h))
      end
      slope[i] = difference(along[i])
    end
    compare(r, label, dirs, slope, got:to "float64", truth, function ()
      for _, f in ipairs(along) do
        if jumps(f) then return true end
      end
    end)
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
