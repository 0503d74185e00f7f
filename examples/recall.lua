-- recall.lua -- regression at test time, on real text.
--
--   flin examples/recall.lua [FILE]
--
-- A layer reads a text once, byte by byte, and predicts each next byte from
-- its state alone: nothing is trained. Keys are hashed features of the bytes
-- before, values are the next byte; the state is the regression of values on
-- keys that the variant's update rule makes of it. Six heads look at contexts
-- of two to six bytes; their normalised answers are added up.
local flin = require "flin"

local ORDERS <const> = { 2, 3, 4, 5, 6, 6 }     -- bytes of context, each head
local WEIGHT <const> = { 1, 1, 1, 1, 1, 1.4 }   -- of each longer context
local K <const>, V <const> = 128, 256
local MOST <const> = 35000                      -- bytes read
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
  local parts = {}
  for _, kind in ipairs(KINDS) do
    for _, path in ipairs(kind) do
      local text = head_of(path, MOST // #KINDS)
      if text then
        parts[#parts + 1] = text
        break
      end
    end
  end
  return table.concat(parts), #parts .. " documents"
end

-- ---- keys and values -----------------------------------------------------

-- Row t of the keys: hashed features of the bytes before byte t, of every
-- length up to the head's, each at its place and with its sign.
local function keys_of(bytes)
  local T, keys = #bytes, flin.zeros { 1, #bytes + 1, H, K }
  for h = 1, H do
    local at = { 1, 0, h, 0 }
    for t = 1, T + 1 do
      local hash, weight = h, 1.0
      at[2] = t
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
  local values = flin.zeros { 1, #bytes, 1, V }
  local at = { 1, 0, 1, 0 }
  for t, byte in ipairs(bytes) do
    at[2], at[4] = t, byte + 1
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

-- What every variant is given. `before` is the context of the byte that is
-- written, `after` that of the next one, which is asked for. before_n and
-- values_n hold the last n pairs of each token, the newest last.
local function task_of(keys, values)
  local T = values.shape[2]
  local task = { T = T, v = values,
                 before = keys:narrow(2, 1, T), after = keys:narrow(2, 2, T) }
  function task.last(n)
    local pad = flin.zeros { 1, T + n - 1, H, K }
    local vpad = flin.zeros { 1, T + n - 1, 1, V }
    pad:narrow(2, n, T):copy(task.before)
    vpad:narrow(2, n, T):copy(values)
    return pad:windows(2, n, 4), vpad:windows(2, n, 4)
  end
  return task
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
local function still(task) return flin.zeros { 1, task.T, 1, 1 } end

-- The preconditioner's centre is the logarithm of what its A, a running sum
-- of squares of unit keys, comes to on average.
local function atk(task)
  return {
    g_atk = per_token(task, FORGET), beta_atk = per_token(task, 1),
    beta = per_token(task, BETA), center = per_head(log(1 / (0.001 * K))),
    strength = per_head(log(1.5)),
  }
end

-- Mamba's names for the same things; no rotation, for a context means the
-- same wherever it stands.
local function mamba(task, more)
  more.C, more.B, more.x = task.after, task.before, task.v
  more.A_log, more.D = per_head(log(-FORGET)), per_head(0)
  more.dt = per_token(task, 1)
  return more
end

local function mamba3(lambda)
  return function (task)
    return mamba(task, { lambda = per_token(task, lambda),
                         theta = still(task) })
  end
end

-- In the order of the table; each gives the inputs of its variant.
local TASKS <const> = {
  { "linear", function (task) return with_q(task, {}) end },
  { "retnet", function (task)
      return with_q(task, { g = per_head(FORGET), theta = flin.zeros { H, 1 } })
    end },
  { "lightning", function (task)
      return with_q(task, { g = per_head(FORGET) })
    end },
  { "simple_gla", function (task)
      return with_q(task, { g = per_token(task, FORGET) })
    end },
  { "mamba2", function (task) return mamba(task, {}) end },
  { "gla", function (task)
      return with_q(task, { g = per_key(task, FORGET) })
    end },
  -- Reads before it writes, so it is asked with the context of its own byte.
  { "rwkv6", function (task)
      return { r = task.before, k = task.before, v = task.v,
               w = per_key(task, FORGET), u = flin.zeros { H, K } }
    end, reads_before = true },
  { "mlstm", function (task)
      return with_q(task, { f = per_token(task, log(999)),
                            i = per_token(task, 0) })
    end },
  { "trapezoidal_gla", function (task)
      return with_q(task, { g = per_token(task, FORGET),
                            lambda = per_token(task, 0.5) })
    end },
  { "mamba3", mamba3(0.5) },
  { "precond_mamba3", mamba3(1) },
  { "deltanet", function (task)
      return with_q(task, { beta = per_token(task, BETA) })
    end },
  { "gated_deltanet", function (task)
      return with_q(task, { beta = per_token(task, BETA),
                            g = per_token(task, SLOWLY) })
    end },
  { "kda", function (task)
      return with_q(task, { beta = per_token(task, BETA),
                            g = per_key(task, SLOWLY) })
    end },
  { "gdn2", function (task)
      return with_q(task, { b = per_key(task, BETA), g = per_key(task, SLOWLY),
                            w = flin.full({ 1, task.T, 1, V }, BETA) })
    end },
  { "comba", function (task)
      return with_q(task, { beta = per_token(task, BETA), d = per_head(0.02),
                            g = per_token(task, SLOWLY), b = per_head(5) })
    end },
  { "rwkv7", function (task)
      return { r = task.after, k = task.before, kappa = task.before,
               v = task.v * BETA, a = per_key(task, BETA),
               w = per_key(task, SLOWLY) }
    end },
  { "deltaproduct", function (task)
      local k, v = task.last(2)
      return { q = task.after, k = k, v = v, g = per_token(task, SLOWLY),
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
      more.g = per_key(task, SLOWLY)
      return with_q(task, more)
    end },
}

-- ---- measuring -----------------------------------------------------------

local clock = flin.clock

local terminal = os.execute "test -t 2" == true
local function progress(...)
  if terminal then
    io.stderr:write("\r\27[K", string.format(...))
  end
end

-- The first `tokens` of the inputs for head h; what all heads share stays.
local function slice(inputs, tokens, h)
  local out = {}
  for name, x in pairs(inputs) do
    local timed = x.rank >= 3
    x = timed and x:narrow(2, 1, math.min(tokens, x.shape[2])) or x
    local axis = timed and 3 or 1
    out[name] = x.shape[axis] > 1 and x:narrow(axis, h, 1) or x
  end
  return out
end

local function relative(y, reference)
  local off = y:to "float64" - reference
  return ((off * off):sum() / (reference * reference):sum())^0.5
end

-- Seconds to compile: the first call of these sizes less the second.
local function measure(variant, inputs)
  local part = slice(inputs, 192, math.min(4, H))
  local t0 = clock()
  local y = variant:forward(part)
  local t1 = clock()
  variant:forward(part)
  local t2 = clock()
  local error = relative(y, (variant:reference(part)))
  return error, math.max(0, (t1 - t0) - (t2 - t1))
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
  local a, b, g = log(0.1), log(30), (5^0.5 - 1) / 2
  for _ = 1, 12 do
    local c, d = b - g * (b - a), a + g * (b - a)
    if bits(scores, wanted, math.exp(c)) < bits(scores, wanted, math.exp(d))
    then b = d else a = c end
  end
  return math.exp((a + b) / 2)
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
  local variant, inputs = flin.stdlib[entry[1]], entry[2](task)
  local row = { name = entry[1] }
  row.error, row.compile = measure(variant, inputs)
  local t0 = clock()
  local y = variant:forward(inputs)
  row.rate = task.T / (clock() - t0)
  row.top, row.bits = judge(scores_of(y), bytes, entry.reads_before and 0 or 1)
  return row
end

-- The same on random input, for those that have no place in the task.
local function draw(name)
  local variant = flin.stdlib[name]
  local sizes = { B = 1, T = 2048, H = 2, K = 64, V = 64, seed = 1 }
  local t0 = clock()
  local found = variant:check { B = 1, T = 128, H = 1, K = 64, V = 64 }
  local inputs = variant:random(sizes)
  local t1 = clock()
  variant:forward(inputs)
  local t2 = clock()
  return { name = name, error = found.y, rate = sizes.T / (t2 - t1),
           compile = t1 - t0 }
end

-- ---- drawing -------------------------------------------------------------

local function colour_depth()
  local term = os.getenv "TERM" or "dumb"
  local colours = os.getenv "COLORTERM" or ""
  if os.getenv "NO_COLOR" or term == "dumb" or os.execute "test -t 1" ~= true
  then return "ascii" end
  if colours:find "truecolor" or colours:find "24bit" then return "true" end
  return term:find "256" and "256" or "ascii"
end

-- Black over violet and orange to white.
local function colour(x, depth, ground)
  if depth == "256" then
    return ("\27[%d;5;%dm"):format(ground, 232 + math.floor(x * 23 + 0.5))
  end
  local function ramp(from, to)
    return math.floor(255 * math.max(0, math.min(1, (x - from) / (to - from))))
  end
  return ("\27[%d;2;%d;%d;%dm"):format(ground, ramp(0, 0.6), ramp(0.3, 0.9),
    x < 0.3 and ramp(0, 0.6) or x < 0.6 and 127 - ramp(0.3, 0.9) // 2
    or ramp(0.6, 1))
end

-- Lines of text that show rows of numbers from 0 to 1.
local function heat_map(rows, depth)
  local lines, shades = {}, " .:-=+*#%@"
  for i = 1, #rows, depth == "ascii" and 1 or 2 do
    local line = {}
    for j, x in ipairs(rows[i]) do
      if depth == "ascii" then
        local s = x <= 0 and 1 or math.min(10, 2 + math.floor(x * 9))
        line[j] = shades:sub(s, s):rep(2)
      else
        line[j] = colour(x, depth, 38) .. colour((rows[i + 1] or {})[j] or 0,
                                                 depth, 48) .. "▀"
      end
    end
    lines[#lines + 1] = table.concat(line) .. (depth ~= "ascii" and "\27[0m"
                                               or "")
  end
  return lines
end

-- A compiled mask, seen by what it does: with q = k = (1, 0, ..) and v the
-- identity, y is the mask itself.
local function mask_rows(variant, inputs, n)
  local one = flin.zeros { 1, n, 1, 16 }
  one:narrow(4, 1, 1):fill(1)
  local v = flin.zeros { 1, n, 1, n }
  for t = 1, n do v[{ 1, t, 1, t }] = 1 end
  inputs.q, inputs.k, inputs.v = one, one, v
  return variant:forward(inputs):reshape(n, n):totable()
end

local function draw_masks(text)
  local n = 24
  local forget, write = {}, {}
  for t = 1, n do
    local letter = text:sub(t, t):match "%a"
    forget[t] = letter and -0.03 or -0.7
    write[t] = letter and 1 or 0.3
  end
  local function row(x) return flin.tensor(x):reshape(1, n, 1) end
  local decay = flin.variant { name = "forget at a word's end",
    mask = function (i, j, p)
      if i < j then return 0 end
      return flin.exp(p.g_cumsum[i] - p.g_cumsum[j])
    end }
  local near = flin.variant { name = "near, or a letter",
    mask = function (i, j, p)
      if i < j then return 0 end
      if i - j < 3 then return 1 end
      return p.w[j] * flin.exp(p.g_cumsum[i] - p.g_cumsum[j])
    end }
  local depth = colour_depth()
  local left = heat_map(mask_rows(decay, { g = row(forget) }, n), depth)
  local right = heat_map(mask_rows(near, { g = row(forget), w = row(write) },
                                   n), depth)
  local width = depth == "ascii" and 2 * n or n
  print(("\nTwo masks, compiled, on the text's first %d bytes (row i: how much "
         .. "byte j counts)"):format(n))
  print(("%-" .. width .. "s   %s"):format(decay.name, near.name))
  for i, line in ipairs(left) do
    print(line .. "   " .. right[i])
  end
end

-- ---- the table -----------------------------------------------------------

local function show(row)
  local function or_dash(format, x) return x and format:format(x) or "-" end
  print(("%-16s %6s %7s  %9.1e %10.0f %9.0f ms"):format(row.name,
    or_dash("%.1f", row.top), or_dash("%.2f", row.bits), row.error, row.rate,
    1000 * row.compile))
end

local function most_frequent(bytes)
  local count, best = {}, 0
  for t = 1, #bytes // 5 do count[bytes[t]] = (count[bytes[t]] or 0) + 1 end
  for byte, n in pairs(count) do
    if n > (count[best] or 0) then best = byte end
  end
  local hits = 0
  for t = #bytes // 5 + 1, #bytes do
    hits = hits + (bytes[t] == best and 1 or 0)
  end
  return 100 * hits / (#bytes - #bytes // 5)
end

local function say(rows, isotropic)
  local function gain(a, b, from)
    from = from or rows
    return ("%+.1f points"):format(from[a].top - from[b].top)
  end
  print(("\nTop-1 against the plain sum: the delta rule %s, a decay %s; a "
    .. "diagonal preconditioner on the decayed sum %s with these keys, whose "
    .. "coordinates differ in energy, and %s with the same keys turned by a "
    .. "random rotation, which makes them alike. All at the same state size: "
    .. "%d x %d numbers a head; this compares update rules, it does not "
    .. "compress."):format(gain("deltanet", "linear"),
    gain("simple_gla", "linear"), gain("precond_mamba3", "simple_gla"),
    gain("precond_mamba3", "simple_gla", isotropic), K, V))
end

local function main(path)
  local start = clock()
  local text, source
  if path then
    text, source = head_of(path, MOST), path
  else
    text, source = default_text()
  end
  if not text or #text < 2000 then
    io.stderr:write(("recall: %s: %s\n"):format(source, text
      and "too short; at least 2000 bytes are wanted" or "cannot be read"))
    os.exit(1)
  end
  local bytes = { text:byte(1, 1) }
  for t = 2, #text do bytes[t] = text:byte(t) end
  progress("making the keys")
  local keys, values = keys_of(bytes), one_hot(bytes)
  local task = task_of(keys, values)
  progress("")
  print(("In-context prediction of the next byte: %d bytes from %s, %d heads"
         .. " of %d x %d"):format(#bytes, source, H, K, V))
  print(("\n%-16s %6s %7s  %9s %10s %12s"):format("variant", "top-1", "bits/",
        "error vs", "tokens", "time to"))
  print(("%-16s %6s %7s  %9s %10s %12s"):format("", "%", "byte", "the step",
        "a second", "compile"))
  print(("%-16s %6.1f"):format("(most frequent)", most_frequent(bytes)))
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
    if not used[name] then show(draw(name)) end
  end
  progress("turning the keys")
  local turned, isotropic = task_of(keys:matmul(rotation()), values), {}
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

main(arg and arg[1])
