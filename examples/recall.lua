-- recall.lua -- what update rules are worth on text: learnt, and read once.
--
--   flin examples/recall.lua [--steps N] [--svg FILE] [FILE]
--
-- First, small models of five variants are trained on the text, the same but
-- for the variant, and their held-out loss stands beside what counting reaches;
-- --svg saves their curves, --steps 0 leaves them out.
--
-- Then regression at test time: a layer reads the text once, byte by byte, and
-- predicts each next byte from its state alone: nothing is trained. Keys are
-- hashed features of the bytes before, values are the next byte; the state is
-- the regression of values on keys that the variant's update rule makes of it.
-- Six heads look at contexts of two to six bytes; their normalised answers are
-- added up. Gates that a variant has are driven by the text: see `gates`.
local flin = require "flin"
local counts = require "counts"
local heat_map = require "heat_map"
local learn = require "learn"

local ORDERS <const> = { 2, 3, 4, 5, 6, 6 }     -- bytes of context, each head
local WEIGHT <const> = { 1, 1, 1, 1, 1, 1.4 }   -- of each longer context
local K <const>, V <const> = 128, 256
local MOST <const> = 35000                      -- bytes read
local TRAINED <const> = 150000                  -- bytes trained on
local LEARNERS <const> = { "linear", "deltanet", "mamba2", "gla",
                           "gated_deltanet" }
local PAD <const> = 3                           -- rows of zeros before them
local H <const> = #ORDERS

-- ---- the text ------------------------------------------------------------

local function head_of(path, bytes)
  local file = io.open(path, "rb")
  local text = file and file:read(bytes)
  if file then file:close() end
  return text
end

-- Kinds of document that a Debian has, so that the text drifts. Of each kind
-- the first that is there.
local KINDS <const> = {
  { "/usr/share/common-licenses/GPL-3", "LICENSE" },
  { "/usr/include/stdio.h", "/usr/include/lua5.4/lua.h", "compiler/ir.h" },
  { "/usr/share/perl5/Debconf/Db.pm", "/usr/share/perl/5.40/CPAN.pm",
    "/usr/share/perl/5.36/CPAN.pm",
    "/usr/lib/x86_64-linux-gnu/perl-base/Carp.pm",
    "/usr/lib/aarch64-linux-gnu/perl-base/Carp.pm", "README.md" },
  { "/usr/share/common-licenses/Artistic", "stdlib/transition.lua" },
  { "/usr/bin/ldd", "/usr/bin/gunzip", "tools/setup.sh" },
  { "/usr/include/math.h", "/usr/include/elf.h", "compiler/derive.c" },
  { "/usr/share/common-licenses/GFDL-1.3", "compiler/affine.c" },
}

local function default_text()
  local parts, left = {}, MOST
  for i, kind in ipairs(KINDS) do
    for _, path in ipairs(kind) do
      local text = head_of(path, left // (#KINDS - i + 1))
      if text then
        parts[#parts + 1] = text
        left = left - #text
        break
      end
    end
  end
  return table.concat(parts), #parts .. " documents"
end

-- ---- keys and values -----------------------------------------------------

-- Row PAD + t of the keys: hashed features of the bytes before byte t, of
-- every length up to the head's, each at its place and with its sign.
local function keys_of(bytes)
  local T, keys = #bytes, flin.zeros { 1, PAD + #bytes + 1, H, K }
  for h = 1, H do
    local at = { 1, 0, h, 0 }
    for t = 1, T + 1 do
      local hash, weight = h, 1.0
      at[2] = PAD + t
      for back = 1, math.min(ORDERS[h], t - 1) do
        hash = (hash ~ (bytes[t - back] + 1)) * 0x9E3779B97F4A7C15
        hash = hash ~ (hash >> 29)
        at[4] = (hash >> 8) % K + 1
        keys[at] = keys[at] + ((hash >> 40) & 1 == 0 and weight or -weight)
        weight = weight * WEIGHT[h]
      end
    end
  end
  return keys:unit()
end

local function one_hot(bytes)
  local values = flin.zeros { 1, PAD + #bytes, 1, V }
  local at = { 1, 0, 1, 0 }
  for t, byte in ipairs(bytes) do
    at[2], at[4] = PAD + t, byte + 1
    values[at] = 1
  end
  return values
end

-- A random orthogonal matrix: Gram and Schmidt on normal columns.
local function rotation()
  local m = flin.randn({ K, K }, { seed = 7 }):totable()
  for i = 1, K do
    for j = 1, i - 1 do
      local dot = 0
      for k = 1, K do dot = dot + m[i][k] * m[j][k] end
      for k = 1, K do m[i][k] = m[i][k] - dot * m[j][k] end
    end
    local norm = 0
    for k = 1, K do norm = norm + m[i][k]^2 end
    for k = 1, K do m[i][k] = m[i][k] / norm^0.5 end
  end
  return flin.tensor(m)
end

-- What drives gates, of each token: `rare`, how many bits its byte took by the
-- counts before it, over what bytes take on average, from 0.5 to 2; `word`, 1
-- where a word ends, and `part`, 1 where a paragraph does, else 0.
local function gates(text)
  local T, model, spent = #text, counts.new(0), 0
  local rare, word, part = {}, {}, {}
  for t = 1, T do
    local bits = model:bits(text, t)
    spent = spent + bits
    rare[t] = math.max(0.5, math.min(2, bits * t / spent))
    word[t] = text:find("^%W", t) and 1 or 0
    part[t] = text:sub(t - 1, t) == "\n\n" and 1 or 0
    model:add(text, t)
  end
  local function timed(list) return flin.tensor(list):reshape(1, T, 1) end
  return { rare = timed(rare), word = timed(word), part = timed(part) }
end

-- What every variant is given. `before` is the context of the byte that is
-- written, `after` that of the next one, which is asked for. last(n) has the
-- last n pairs of each token, the newest last.
local function task_of(keys, values, signals)
  local T = values.shape[2] - PAD
  return {
    T = T, rare = signals.rare, word = signals.word, part = signals.part,
    v = values:narrow(2, PAD + 1, T),
    before = keys:narrow(2, PAD + 1, T), after = keys:narrow(2, PAD + 2, T),
    last = function (n)
      local from, rows = PAD + 2 - n, T + n - 1
      return keys:narrow(2, from, rows):windows(2, n, 4),
             values:narrow(2, from, rows):windows(2, n, 4)
    end,
  }
end

-- ---- the variants --------------------------------------------------------

local log = math.log
local FORGET <const>, SLOWLY <const> = log(0.999), log(0.9997)
local BETA <const> = 0.1

local function with_q(task, more)
  more.q, more.k, more.v = task.after, task.before, task.v
  return more
end

local function per_head(x) return flin.full({ H }, x) end
local function per_token(task, x) return flin.full({ 1, task.T, 1 }, x) end
local function per_key(task, x) return flin.full({ 1, task.T, 1, K }, x) end

-- A log decay that is stronger where words and paragraphs end.
local function by_text(task, usual)
  return task.word * (4 * usual) + task.part * -0.05 + usual
end

-- The same for each entry of the keys, and stronger where the token writes:
-- what stands there makes room, `room` for a whole key.
local function by_key(task, usual, room)
  local g, k = by_text(task, usual), task.before
  if room == 0 then return g:expand(4, K):contiguous() end
  return g:reshape(1, task.T):expand(3, H):expand(4, K):contiguous()
         - k * k * room
end

-- From one number to another over the heads, or entries of a key.
local function spread(from, to, n)
  local list = {}
  for i = 1, n do list[i] = from * (to / from) ^ ((i - 1) / (n - 1)) end
  return flin.tensor(list)
end

-- The entries of the list, times x of each token: [1, T, 1, entries].
local function scaled(task, list, x)
  local n = #list
  return list:expand(1, task.T):contiguous():reshape(1, task.T, 1, n)
         * x:expand(4, n):contiguous()
end

-- Slow angles: a context means the same where it stands close.
local function turning(task)
  return scaled(task, spread(1e-5, 1e-3, K // 2), per_token(task, 1))
end

-- The preconditioner's centre is the logarithm of what its A, a running sum
-- of squares of unit keys, comes to on average.
local function atk(task)
  return {
    g_atk = per_token(task, FORGET), beta_atk = per_token(task, 1),
    beta = per_token(task, BETA), center = per_head(log(1 / (0.001 * K))),
    strength = per_head(log(1.5)),
  }
end

-- Mamba's names for the same things.
local function mamba(task, more)
  more.C, more.B, more.x = task.after, task.before, task.v
  more.A_log, more.D = per_head(log(-FORGET)), per_head(0)
  more.dt = more.dt or per_token(task, 1)
  return more
end

-- In the order of the table; each gives the inputs of its variant. The decay of
-- simple_gla, the rates of deltanet and gated_deltanet and the preconditioners
-- are constants, to compare the rules alone; gates of the others follow the
-- text.
local TASKS <const> = {
  { "linear", function (task) return with_q(task, {}) end },
  { "simple_gla", function (task)
      return with_q(task, { g = per_token(task, FORGET) })
    end },
  { "retnet", function (task)
      return with_q(task, { g = -spread(2e-4, 8e-3, H),
                            theta = spread(1e-5, 1e-3, K // 2):expand(1, H)
                                    :contiguous() })
    end },
  { "lightning", function (task)
      return with_q(task, { g = -spread(1e-4, 2e-2, H) })
    end },
  { "mamba2", function (task) return mamba(task, { dt = task.rare }) end },
  { "gla", function (task)
      return with_q(task, { g = by_key(task, FORGET, 0.05) })
    end },
  -- Reads before it writes, so it is asked with the context of its own byte.
  { "rwkv6", function (task)
      return { r = task.before, k = task.before, v = task.v,
               w = scaled(task, -spread(1e-4, 1e-2, K), task.word + 0.5),
               u = flin.zeros { H, K } }
    end, reads_before = true },
  { "mlstm", function (task)
      return with_q(task, { f = per_token(task, log(999)) - task.part * 4
                                - task.word, i = task.rare })
    end },
  { "trapezoidal_gla", function (task)
      return with_q(task, { g = by_text(task, FORGET),
                            lambda = task.word * 0.25 + 0.7 })
    end },
  { "mamba3", function (task)
      return mamba(task, { dt = task.rare, lambda = task.word * 0.25 + 0.7,
                           theta = turning(task) })
    end },
  { "precond_mamba3", function (task)
      return mamba(task, { lambda = per_token(task, 1),
                           theta = flin.zeros { 1, task.T, 1, 1 } })
    end },
  { "deltanet", function (task)
      return with_q(task, { beta = per_token(task, BETA) })
    end },
  { "gated_deltanet", function (task)
      return with_q(task, { beta = per_token(task, BETA),
                            g = per_token(task, SLOWLY) })
    end },
  { "kda", function (task)
      return with_q(task, { beta = per_token(task, BETA),
                            g = by_key(task, SLOWLY, 0.003) })
    end },
  { "gdn2", function (task)
      local w = task.part * -0.05 + BETA
      return with_q(task, { b = per_key(task, BETA),
                            g = by_key(task, SLOWLY, 0),
                            w = w:expand(4, V):contiguous() })
    end },
  { "comba", function (task)
      return with_q(task, { beta = task.rare * BETA, d = per_head(0.02),
                            g = by_text(task, SLOWLY), b = per_head(5) })
    end },
  { "momentum_deltanet", function (task)
      return with_q(task, { p = task.before, g = per_token(task, SLOWLY),
                            mu = per_token(task, log(0.2)),
                            beta = per_token(task, 0.8 * BETA),
                            eta = per_token(task, 1) })
    end },
  { "rwkv7", function (task)
      return { r = task.after, k = task.before, kappa = task.before,
               v = task.v * BETA, w = by_key(task, SLOWLY, 0),
               a = scaled(task, spread(0.8 * BETA, 1.25 * BETA, K),
                          per_token(task, 1)) }
    end },
  { "deltaproduct", function (task)
      local k, v = task.last(2)
      return { q = task.after, k = k, v = v, g = by_text(task, SLOWLY),
               beta = flin.full({ 1, task.T, 1, 2 }, BETA / 2) }
    end },
  { "mimo_deltanet", function (task)
      local k, v = task.last(4)
      return { q = task.after, k = k, v = v,
               beta = flin.full({ 1, task.T, 1, 4 }, BETA / 4) }
    end },
  { "precond_gdn", function (task)
      local more = atk(task)
      more.g = per_token(task, 0)
      return with_q(task, more)
    end },
  { "precond_kda", function (task)
      local more = atk(task)
      more.g = by_key(task, SLOWLY, 0)
      return with_q(task, more)
    end },
}

-- ---- measuring -----------------------------------------------------------

local clock = flin.clock                -- seconds by the wall

local terminal = os.execute "test -t 2" == true
local function progress(...)
  if terminal then
    io.stderr:write("\r\27[K", string.format(...))
  end
end

-- The first `tokens` of the inputs for head h; what all heads share stays.
local function slice(variant, inputs, tokens, h)
  local out = {}
  for _, input in ipairs(variant.inputs) do
    local x, axis = inputs[input.name], 1
    if input.axes:find "t" then
      x, axis = x:narrow(2, 1, math.min(tokens, x.shape[2])), 3
    end
    out[input.name] = x.shape[axis] > 1 and x:narrow(axis, h, 1) or x
  end
  return out
end

local function relative(y, reference)
  local off = y:to "float64" - reference
  return ((off * off):sum() / (reference * reference):sum())^0.5
end

-- What f takes of the processor; with one thread, its time.
local function seconds(f, ...)
  local t0 = os.clock()
  local y = f(...)
  return os.clock() - t0, y
end

-- A variant, and the time to trace it in its row.
local function traced(row)
  local variant
  row.compile, variant = seconds(function () return flin.stdlib[row.name] end)
  return variant
end

-- The error on the first tokens of one head. And the time to compile: to
-- trace the step, and what the first call takes longer than the second.
local function measure(row, variant, inputs)
  local token = slice(variant, inputs, 1, 4)
  local first = seconds(variant.forward, variant, token)
  local again = seconds(variant.forward, variant, token)
  row.compile = row.compile + math.max(0, first - again)
  local part = slice(variant, inputs, 100, 4)
  row.error = relative((variant:forward(part)), (variant:reference(part)))
end

-- Scores of the next byte, [T, 256]: the heads' answers, each of norm 1.
local function scores_of(y)
  return y:sum_over(3, 1 / (y:norm() + 1e-30))[1]
end

local function bits(scores, wanted, scale)
  local chosen = scores:gather(wanted)
  return (scores:logsumexp(scale):mean() - scale * chosen:mean()) / log(2)
end

-- The scale (1 / temperature) of least bits: golden section on its logarithm.
local function fit(scores, wanted)
  local function at(x) return bits(scores, wanted, math.exp(x)) end
  local g, a, d = (5^0.5 - 1) / 2, log(0.5), log(16)
  local b, c = d - g * (d - a), a + g * (d - a)
  local bits_b, bits_c = at(b), at(c)
  for _ = 1, 8 do
    if bits_b < bits_c then
      c, d, bits_c = b, c, bits_b
      b = d - g * (d - a)
      bits_b = at(b)
    else
      a, b, bits_b = b, c, bits_c
      c = a + g * (d - a)
      bits_c = at(c)
    end
  end
  return math.exp((a + d) / 2)
end

-- Top-1 percent and bits a byte on the last 80 %; row t scores byte t + ahead.
local function judge(scores, bytes, ahead)
  local function part(from, to)
    local index = {}
    for t = from, to do index[#index + 1] = bytes[t] + 1 end
    return scores:narrow(1, from - ahead, to - from + 1), flin.tensor(index)
  end
  local T = #bytes
  local scale = fit(part(T // 20 + 1, T // 5))
  local rows, wanted = part(T // 5 + 1, T)
  local best, hits = rows:argmax():totable(), 0
  for i, byte in ipairs(wanted:totable()) do
    hits = hits + (best[i] == byte and 1 or 0)
  end
  return 100 * hits / #best, bits(rows, wanted, scale)
end

-- One row: the figures of a variant on a task.
local function predict(entry, task, bytes)
  local row, inputs = { name = entry[1] }, entry[2](task)
  local variant = traced(row)
  measure(row, variant, inputs)
  local t0 = clock()
  local y = variant:forward(inputs)
  row.rate = task.T / (clock() - t0)
  row.top, row.bits = judge(scores_of(y), bytes, entry.reads_before and 0 or 1)
  return row
end

-- Random numbers of an input's domain.
local function draw(input, size, seed)
  local timed = input.axes:find "t" ~= nil
  local shape = timed and { 1, size.t, size.h } or { size.h }
  for axis in input.axes:gmatch "%a+" do
    if axis ~= "t" then shape[#shape + 1] = size[axis] end
  end
  local x, domain = flin.randn(shape, { seed = seed }), input.domain
  if domain == "unit_norm" then return x:unit() end
  return domain == "normal" and x or x:map(function (u)
    if domain == "log_decay" then return -log(1 + math.exp(-u)) end
    if domain == "positive" then return log(1 + math.exp(u)) end
    return 1 / (1 + math.exp(-u))
  end)
end

-- The same on random input, for those that have no place in the task.
local function try(name)
  local row, inputs = { name = name }, {}
  local size = { t = 2048, h = H, k = 64, v = 64, m = 64, p = 32, r = 4 }
  local variant = traced(row)
  for seed, input in ipairs(variant.inputs) do
    inputs[input.name] = draw(input, size, seed)
  end
  measure(row, variant, inputs)
  local t0 = clock()
  variant:forward(inputs)
  row.rate = size.t / (clock() - t0)
  return row
end

-- ---- two masks -----------------------------------------------------------

-- A compiled mask, seen by what it does: with q = k = (1, 0, ..) and v the
-- identity, y is the mask itself.
local function mask_rows(variant, inputs, n)
  local one, v = flin.zeros { 1, n, 1, 16 }, flin.zeros { 1, n, 1, n }
  one:narrow(4, 1, 1):fill(1)
  for t = 1, n do v[{ 1, t, 1, t }] = 1 end
  inputs.q, inputs.k, inputs.v = one, one, v
  return variant:forward(inputs):reshape(n, n):totable()
end

local MASKS <const> = {
  { "forgets at a word's end", function (i, j, p)
      if i < j then return 0 end
      return flin.exp(p.g_cumsum[i] - p.g_cumsum[j])
    end },
  { "the last three, then word by word", function (i, j, p)
      if i < j then return 0 end
      if i - j < 3 then return 1 end
      return p.w[j] * flin.exp(p.g_cumsum[i] - p.g_cumsum[j])
    end },
}

-- The masks on a passage of the text: g forgets between words, w writes there
-- little.
local function draw_masks(text)
  local n = heat_map.depth == "ascii" and 18 or 36
  local from = text:find "%l+ %l+ %l+ %l+ %l" or 1
  local passage = text:sub(from, from + n - 1)
  local given, maps = { g = {}, w = {} }, {}
  for t = 1, n do
    local letter = passage:sub(t, t):match "%a"
    given.g[t] = letter and -0.05 or -0.9
    given.w[t] = letter and 0.8 or 0.2
  end
  for i, mask in ipairs(MASKS) do
    local variant, inputs = flin.variant { name = "mask", mask = mask[2] }, {}
    for _, input in ipairs(variant.inputs) do
      local x = given[input.name]
      inputs[input.name] = x and flin.tensor(x):reshape(1, n, 1)
    end
    maps[i] = heat_map.lines(mask_rows(variant, inputs, n))
    table.insert(maps[i], 1, heat_map.label(mask[1], n))
    table.insert(maps[i], heat_map.label(passage:gsub("[^%g ]", " "), n, true))
  end
  print "\nTwo masks, compiled: the weight of byte j (across) at byte i (down)"
  for i, line in ipairs(maps[1]) do
    print(line .. "   " .. maps[2][i])
  end
end

-- ---- the table -----------------------------------------------------------

-- The worst gradient, of all inputs and initial states, against reverse mode
-- of the float64 step: some random tokens, two chunks.
local function gradient_error(name)
  local worst = 0
  local errors = flin.stdlib[name]:check { T = 24, H = 1, K = 16, V = 16,
                                           chunk = 16 }
  for what, e in pairs(errors) do
    if what:find "^d_" then worst = math.max(worst, e) end
  end
  return worst
end

local function show(row)
  local function or_dash(format, x) return x and format:format(x) or "-" end
  print(("%-16s %6s %7s  %9.1e %9.1e %10.0f %9.1f ms"):format(row.name,
    or_dash("%.1f", row.top), or_dash("%.2f", row.bits), row.error,
    gradient_error(row.name), row.rate, 1000 * row.compile))
end

-- Counting the same text as it is read: the state has no bounds there.
local function show_counts(text)
  for _, order in ipairs { 0, 1, 3 } do
    progress("counting contexts of %d bytes", order)
    local bits, top = counts.reading(text, order, #text // 5 + 1)
    progress("")
    print(("%-16s %6.1f %7.2f"):format(("counts, order %d"):format(order), top,
                                       bits))
  end
end

-- ---- learning ------------------------------------------------------------

local function show_learning(text, option)
  local series, levels, rest = learn.curves(text, { names = LEARNERS,
                                 steps = option.steps, progress = progress })
  progress("")
  print(("Learnt: one layer of width 128 each, the same but for the variant, "
         .. "%d steps\non %d bytes; bits a byte on %d that are held out, and "
         .. "what counting reaches\n"):format(option.steps, #text - rest, rest))
  local o = { x = "step", y = "held-out bits a byte", baselines = levels,
              to = levels[1][2] + 0.6 }
  local drawing = {}
  for name, x in pairs(o) do drawing[name] = x end
  drawing.format, drawing.rows = "text", 14
  drawing.colours = heat_map.depth
  print(flin.picture.curves(series, drawing))
  if option.svg then
    o.title = "Held-out loss of a layer, by its update rule"
    flin.save(option.svg, flin.picture.curves(series, o))
    print("\nthe same as a drawing: " .. option.svg)
  end
  local last = {}
  for _, s in ipairs(series) do last[s.name] = s.points[#s.points][2] end
  print(([[

Bits a byte: the delta rule over the sum %+.2f, a gate over the sum %+.2f (gla),
both %+.2f. What is counted is kept whole: contexts of three bytes have no
bounds, a layer has its weights and a state.
]]):format(last.deltanet - last.linear, last.gla - last.linear,
           last.gated_deltanet - last.linear))
end

local function say(rows, isotropic)
  local function gain(a, b, from)
    from = from or rows
    return ("%+.1f"):format(from[a].top - from[b].top)
  end
  print(([[

Top-1, points: the delta rule over the sum %s; a decay over the sum %s; a
diagonal preconditioner over the decayed sum %s with these keys, whose
coordinates differ in energy, and %s with the same keys turned at random,
whose coordinates are alike. Update rules at one state size, %d x %d numbers
a head; nothing is compressed.]]):format(
    gain("deltanet", "linear"), gain("simple_gla", "linear"),
    gain("precond_mamba3", "simple_gla"),
    gain("precond_mamba3", "simple_gla", isotropic), K, V))
end

local function options()
  local option, i = { steps = 200 }, 1
  while arg[i] do
    local name = arg[i]:match "^%-%-(%a+)$"
    if name == "steps" then
      option.steps = math.tointeger(tonumber(arg[i + 1]))
    elseif name == "svg" then
      option.svg = arg[i + 1]
    else
      option.path = arg[i]
    end
    if name and not option[name] then
      io.stderr:write("recall: --steps N and --svg FILE are the options\n")
      os.exit(1)
    end
    i = i + (name and 2 or 1)
  end
  return option
end

local function main(option)
  local start, path = clock(), option.path
  local text, source
  if path then
    text, source = head_of(path, MOST), path
  else
    text, source = default_text()
  end
  if not text or #text < 2000 then
    io.stderr:write(("recall: %s: %s\n"):format(source, text
      and "too short, give a text of 2000 bytes or more" or "cannot be read"))
    os.exit(1)
  end
  if option.steps > 0 then
    show_learning(path and head_of(path, TRAINED)
                  or learn.default_text():sub(1, TRAINED), option)
  end
  local bytes = { text:byte(1, 1) }
  for t = 2, #text do bytes[t] = text:byte(t) end
  progress("making the keys")
  local keys, values = keys_of(bytes), one_hot(bytes)
  local signals = gates(text)
  local task = task_of(keys, values, signals)
  progress("")
  print(("In-context prediction of the next byte: %d bytes from %s, %d heads"
         .. " of %d x %d"):format(#bytes, source, H, K, V))
  local head = "%-16s %6s %7s  %9s %9s %10s %12s"
  print("\n" .. head:format("variant", "top-1", "bits/", "error vs",
                            "gradients", "tokens", "time to"))
  print(head:format("", "%", "byte", "the step", "likewise", "a second",
                    "compile"))
  show_counts(text)
  local rows, used = {}, {}
  for _, entry in ipairs(TASKS) do
    progress("%s", entry[1])
    local row = predict(entry, task, bytes)
    progress("")
    show(row)
    rows[entry[1]], used[entry[1]] = row, true
  end
  print "\non random input"
  for _, name in ipairs(flin.stdlib_names) do
    if not used[name] then show(try(name)) end
  end
  progress("turning the keys")
  local turned, isotropic = task_of(keys:matmul(rotation()), values,
                                    signals), {}
  for _, entry in ipairs(TASKS) do
    if entry[1] == "simple_gla" or entry[1] == "precond_mamba3" then
      progress("%s, keys turned", entry[1])
      isotropic[entry[1]] = predict(entry, turned, bytes)
    end
  end
  progress("")
  say(rows, isotropic)
  draw_masks(text)
  print(("\n%.0f s"):format(clock() - start))
end

main(options())
