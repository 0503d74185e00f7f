-- v:bench: how long a variant's calls and their kernels take, beside a loop
-- over the tokens and the least that this machine, or its GPU, needs to move
-- the arguments.
local flin, own = ...

local RUNS <const>, MOST <const> = 5, 201

local function median(times)
  table.sort(times)
  local n = #times
  return n % 2 == 1 and times[n // 2 + 1]
         or (times[n // 2] + times[n // 2 + 1]) / 2
end

local function clock(f)
  local from = flin.clock()
  f()
  return flin.clock() - from
end

-- What f takes for `seconds`, `least` times and MOST at most. time(f): how long
-- the machine that works it off takes.
local function times_of(seconds, least, time, f)
  local times, spent = {}, 0
  while #times < MOST and (#times < least or spent < seconds) do
    local from = flin.clock()
    times[#times + 1] = time(f)
    spent = spent + flin.clock() - from
  end
  return times
end

-- Runs f once to plan and warm up, then for `seconds`, five times at least
-- (three where one run alone takes that long).
local function measure(name, tokens, seconds, time, f)
  local first = clock(f)
  local times = times_of(seconds, first > seconds and 3 or RUNS, time, f)
  local middle, n = median(times), #times
  return { name = name, tokens = tokens, runs = n, first = first,
           seconds = middle,        -- sorted: a quarter lies beyond either
           spread = (times[n - n // 4] - times[1 + n // 4]) / 2 }
end

-- What each kernel of f's calls takes: medians, those of a plan's kernel that
-- is several on this machine added up, with each of them in `parts`.
local function kernels_of(call, seconds, time, f)
  local runs, list = {}, {}
  times_of(seconds / 2, RUNS, time, function ()
    runs[#runs + 1] = own.kernel_times(f)
  end)
  for at, heard in ipairs(runs[1]) do
    local times = {}
    for _, run in ipairs(runs) do
      times[#times + 1] = run[at] and run[at].seconds
    end
    heard.seconds = median(times)
    local k, before = list[#list], runs[1][at - 1]
    if not k or before.plan ~= heard.plan or k.kernel ~= heard.kernel then
      k = { call = call, name = heard.name, kernel = heard.kernel,
            flops = heard.flops, moved = heard.moved,
            counted = heard.counted, seconds = 0, predicted = 0,
            parts = {} }
      list[#list + 1] = k
    end
    k.seconds = k.seconds + heard.seconds
    k.predicted = k.predicted + heard.predicted
    k.parts[#k.parts + 1] = { name = heard.part, seconds = heard.seconds,
                              predicted = heard.predicted }
  end
  return list
end

local function flops_of(kernels)
  local n = 0
  for _, k in ipairs(kernels) do
    n = n + k.flops
  end
  return n
end

local function merged(a, b)
  local t = {}
  for k, x in pairs(a) do t[k] = x end
  for k, x in pairs(b) do t[k] = x end
  return t
end

local WIDTH <const> = { float64 = 8, float32 = 4, bfloat16 = 2, float16 = 2 }

local function bytes_of(tensors)
  local n = 0
  for _, t in pairs(tensors) do
    if flin.is_tensor(t) then
      n = n + t.count * WIDTH[t.dtype]
    end
  end
  return n
end

-- The rate of a product of matrices that stay in the cache, for each thread
-- that of one.
local function product_rate(threads)
  local n, best = 256, 0
  local a, b = flin.zeros(n, n), flin.zeros(n, n)
  local into = { into = flin.zeros(n, n) }
  for _ = 1, 9 do
    local spent = clock(function () flin.host.matmul(a, b, into) end)
    best = math.max(best, 2 * n^3 / spent)
  end
  return best * threads
end

-- ---- the table ----

local UNITS <const> = { { 1, "s" }, { 1e-3, "ms" }, { 1e-6, "us" } }

local function time_text(s)
  for _, unit in ipairs(UNITS) do
    if s >= unit[1] then
      return ("%.3g %s"):format(s / unit[1], unit[2])
    end
  end
  return ("%.3g ns"):format(s * 1e9)
end

local function row_text(row, floor)
  local function rate(x)
    return x and ("%8.2f"):format(x / row.seconds / 1e9) or "       -"
  end
  return ("  %-20s %9s %5.1f%% %8.2f %s %s %8.1fx"):format(row.name,
         time_text(row.seconds), 100 * row.spread / row.seconds,
         row.tokens / row.seconds / 1e6, rate(row.flops), rate(row.bytes),
         row.seconds / (row.floor or floor))
end

local function predicted_text(k)
  return k.predicted > 0 and ("  predicted %s, %.2f of it"):format(
    time_text(k.predicted), k.predicted / k.seconds) or ""
end

-- Below their call's row, where it has several, or where they were predicted.
local function kernel_lines(b, call, lines)
  local mine, shown = {}, false
  for _, k in ipairs(b.kernels) do
    mine[#mine + 1] = k.call == call and k or nil
  end
  shown = #mine > 1 or (mine[1] and mine[1].predicted > 0)
  for _, k in ipairs(shown and mine or {}) do
    lines[#lines + 1] = ("    %d %-16s %9s %24.2f %8.2f%s"):format(k.kernel,
      k.name, time_text(k.seconds), k.flops / k.seconds / 1e9,
      k.moved / k.seconds / 1e9, predicted_text(k))
    for _, part in ipairs(#k.parts > 1 and k.parts or {}) do
      lines[#lines + 1] = ("      %-16s %9s%34s%s"):format(part.name,
        time_text(part.seconds), "", predicted_text(part))
    end
  end
end

local meta = {}

function meta.__tostring(b)
  local lines = {
    ("%s: %s; medians, +- half the range of the middle half")
      :format(b.name, b.shape),
    ("  %-20s %9s %6s %8s %8s %8s %9s"):format("", "time", "+-", "Mtok/s",
                                               "GFLOP/s", "GB/s", "of floor"),
  }
  for _, row in ipairs(b.rows) do
    lines[#lines + 1] = row_text(row, b.floor)
    kernel_lines(b, row.name, lines)
  end
  lines[#lines + 1] = ("  %-20s %9s: %.3g MB of arguments and results at the "
    .. "%.3g GB/s of a copy %s"):format("floor", time_text(b.floor),
                                        b.bytes / 1e6, b.copy / 1e9,
                                        b.gpu and "on " .. b.gpu or "here")
  if b.speedup then
    lines[#lines + 1] = ("  chunks are %.3g times as fast as token by token")
                        :format(b.speedup)
  end
  if b.note then
    lines[#lines + 1] = "  token by token: " .. b.note
  end
  return table.concat(lines, "\n")
end

-- ---- v:bench ----

local KNOWN <const> = { B = 1, T = 1024, H = 4, HV = false, dtype = "float32",
                        chunk = false, backend = false, threads = false,
                        backward = true, seconds = 0.3, seed = 1,
                        states = true }

-- f of each axis of the inputs, and how long it is in these tensors.
local function each_axis(v, inputs, f)
  for _, input in ipairs(v.inputs) do
    local at = 2                        -- behind the heads
    for axis in input.axes:gmatch "%a%w*" do
      if axis == "t" then
        at = 4
      else
        f(axis, inputs[input.name].shape[at])
        at = at + 1
      end
    end
  end
end

-- What is measured, and inputs: keys and values of 64 where nothing else is
-- said.
local function read(v, o)
  if type(o) ~= "table" then
    error("bench: a table of options is wanted, not a " .. type(o), 3)
  end
  local option, sizes, random = {}, {}, {}
  for name, usual in pairs(KNOWN) do
    option[name] = usual or nil
  end
  for name, x in pairs(o) do
    if KNOWN[name] == nil then
      sizes[name] = x
    else
      option[name] = x
    end
  end
  for _, name in ipairs { "B", "T", "H", "HV", "dtype", "seed" } do
    random[name] = option[name]
  end
  if type(option.seconds) ~= "number" or option.seconds < 0 then
    error("bench: seconds = " .. tostring(option.seconds)
          .. ": a number, 0 or more, is wanted", 3)
  end
  if type(option.backward) ~= "boolean" then
    error("bench: backward = " .. tostring(option.backward)
          .. ": true or false is wanted", 3)
  end
  for _, name in ipairs { "B", "T" } do
    if option[name] == 0 then
      error("bench: " .. name .. " = 0: there is no token to measure", 3)
    end
  end
  local usual = merged({ B = 1, T = 1, H = 1, size = 64 }, sizes)
  each_axis(v, v:random(usual), function (axis, n)
    if axis == "k" or axis == "v" then
      sizes[axis:upper()] = n
    end
  end)
  local inputs = v:random(merged(random, sizes))
  return option, inputs
end

-- How time is taken where the calls run, bytes a second of a copy there, and
-- the GPU's name and flops a second, where it is one: then the inputs go there.
local function stopwatch(option, inputs)
  if (option.backend or flin.backend) ~= "cuda" then
    return clock, own.copy_rate(option.threads or flin.threads or 0)
  end
  for name, x in pairs(inputs) do
    inputs[name] = flin.is_tensor(x) and x:to "cuda" or x
  end
  local time, rate, products = own.gpu_watch()
  return time, rate, flin.cuda().name, products
end

-- One token of each sequence, and a state for it.
local function first_token(v, inputs, calls)
  local token = merged({}, calls)
  for _, input in ipairs(v.inputs) do
    local x = inputs[input.name]
    token[input.name] = input.axes:find "^t" and x:narrow(2, 1, 1) or x
  end
  token.chunk = nil
  return token
end

return function (v, o)
  local option, inputs = read(v, o or {})
  local calls = { chunk = option.chunk, backend = option.backend,
                  threads = option.threads, validate = false }
  local tokens = option.B * option.T
  local time, copy, gpu, peak = stopwatch(option, inputs)
  local arguments = merged(inputs, calls)
  local y, state = v:forward(arguments)
  if not option.states then
    arguments.states = false
  end
  local results = type(y) == "table" and y or { y = y }
  local b = setmetatable({ name = v.name, note = v.note, rows = {},
                           kernels = {} }, meta)
  b.copy, b.gpu, b.peak = copy, gpu, peak
  if not gpu then
    local threads = option.threads or flin.threads or 0
    b.threads = threads > 0 and threads or own.cores()
    b.peak = product_rate(b.threads)
  end
  b.bytes = bytes_of(inputs) + bytes_of(results)
            + (option.states and bytes_of(state) or 0)
  b.floor = b.bytes / b.copy
  b.shape = ("%s [%s]"):format(results.y.dtype,
                               table.concat(results.y.shape, ", "))
  local function add(name, n, bytes, f)
    local row = measure(name, n, option.seconds, time, f)
    row.bytes, row.floor = bytes, bytes / b.copy
    b.rows[#b.rows + 1] = row
    return row
  end
  local function heard(name, n, bytes, f)
    local row = add(name, n, bytes, f)
    local kernels = kernels_of(name, option.seconds, time, f)
    row.flops = flops_of(kernels)
    table.move(kernels, 1, #kernels, #b.kernels + 1, b.kernels)
    return row
  end
  local chunked = heard(b.note and "forward" or "forward, chunks", tokens,
    b.bytes, function () v:forward(arguments) end)
  if not b.note then
    local serial = merged(merged(inputs, calls), { serial = true })
    local loop = add("token by token", tokens, b.bytes,
                     function () v:forward(serial) end)
    b.speedup = loop.seconds / chunked.seconds
  end
  if option.backward then
    local save = merged(arguments, { save = true })
    local both = heard("forward + backward", tokens, 2 * b.bytes
      + 2 * bytes_of(results), function ()
        local _, _, saved = v:forward(save)
        v:backward { saved = saved, dy = y, validate = false }
      end)
    local _, _, saved = v:forward(save)
    local function back()
      v:backward { saved = saved, dy = y, validate = false }
    end
    local flops = flops_of(kernels_of("", 0, time, back))
    if not b.note and flops < both.flops then   -- forward does not run again
      add("backward alone", tokens, 2 * b.bytes + bytes_of(results),
          back)
        .flops = flops
    end
  end
  if not own.steps(v) then return b end
  local token = first_token(v, inputs, calls)
  token.state, token.inplace = state, true
  local one = v:step(token)
  heard("decode, one token", option.B, bytes_of(token)
        + bytes_of(type(one) == "table" and one or { one })
        + 2 * bytes_of(state), function () v:step(token) end)
  return b
end
