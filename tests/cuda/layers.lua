-- Layers on a GPU against their float64 step: forward, gradients, decoding,
-- states, packed sequences; tensors that live there, one workspace, the same
-- bits each time.
--   flin tests/cuda/layers.lua [large] [pieces] [stack] [over] [NAME ...]
-- large: sizes of models, too, in many processes, as it is compilers that take
-- long; I/N with a name: every N-th of its cases. pieces: the layers of the
-- library, whose calls run in pieces, so many as FLIN_PIECES says ("4",
-- "4again", "1beside"). stack: as layers among many.
local flin = require "flin"
local suite = require "suite"
local expect = suite.expect

local only, large, over
local share, shares = 0, 1              -- of a layer's cases those that are run
local how <const> = {}                  -- what each call has beside tensors
for _, word in ipairs { ... } do
  if word == "large" then large = true
  elseif word == "over" then over = true
  elseif word == "pieces" or word == "stack" then
    how.plan, how.chunk = word, 16
  elseif word:find "/" then
    share, shares = word:match "(%d+)/(%d+)"
    share, shares = tonumber(share), tonumber(shares)
  else only = only or {} only[word] = true end
end

-- What this file does for each of these names, beside one another.
local function all_at_once(names)
  local pipes, passed, failed = {}, 0, 0
  for i, name in ipairs(names) do
    pipes[i] = assert(io.popen(("'%s' '%s' large %s 2>&1"):format(
      arg[-1], arg[0], name)))
  end
  for i, name in ipairs(names) do
    local last
    for line in pipes[i]:lines() do
      if last then print(last) end
      last = line
    end
    local good, bad = (last or ""):match "^(%d+) passed, (%d+) failed"
    if not good then
      print(("FAIL  %s: %s"):format(name, last or "it says nothing"))
    end
    passed, failed = passed + (good or 0), failed + (bad or 1)
    pipes[i]:close()
  end
  print(("%d passed, %d failed"):format(passed, failed))
  os.exit(failed == 0 and 0 or 1)
end

suite.gpu { poison = true }

if large and not only then
  local names <const>, parts <const> = { "taps", "one" }, 4
  for name in pairs(flin.layers) do
    for i = 0, parts - 1 do
      table.insert(names, ("%s %d/%d"):format(name, i, parts))
    end
  end
  all_at_once(names)
end

local function with(a, b)
  local all = {}
  for k, v in pairs(a) do all[k] = v end
  for k, v in pairs(b) do all[k] = v end
  return all
end

-- What is summed over all tokens, or over a row, is off by more; what has
-- cancelled by as many roundings more as the host's, in float32, is off by. Of
-- what has cancelled wholly bfloat16 says nothing; float32 does.
local LIMIT <const> = {
  float32  = { y = 2e-4, d = 2e-4, rounding = 16 },
  bfloat16 = { y = 1e-2, d = 6e-2, rounding = 2^16 }
}

local function check(name, layer, case)
  case.backend = "cuda"
  local text = ("%s %s%s%s"):format(name, case.dtype, case.cu_seqlens
    and ", packed" or "", case.plan and ", " .. case.plan or "")
  local limit, fine = LIMIT[case.dtype], nil
  local ok, found = pcall(layer.check, layer, case)
  expect(ok, "%s: %s", text, found)
  for what, off in pairs(ok and found or {}) do
    if type(off) == "number" and what ~= "worst" then
      local most = what:find "^d_" and limit.d or limit.y
      if off > most then
        fine = fine or layer:check(with(case, { backend = "cpu",
                                                dtype = "float32" }))
        most = math.max(most, limit.rounding * fine[what])
      end
      expect(off <= most, "%s: %s is off by %.1e, of at most %.1e", text, what,
             off, most)
    end
  end
end

local function moved(tensors, to)
  local there = {}
  for k, v in pairs(tensors) do there[k] = v:to(to) end
  return there
end

-- Tensors that live there, twice: the same bits, no memory beside results. A
-- call that saves may have other kernels: its y is the same to a rounding of
-- bfloat16. Gradients are of the same dy: bit for bit those from what it saved.
local function lives(name, layer, sizes)
  local x = with(moved(layer:random(sizes), "cuda"), how)
  local y, state = layer:forward(x)
  expect(y.device == "cuda", "%s: y is on the %s", name, y.device)
  local d = layer:backward(with(x, { dy = y }))
  local again = layer:forward(x)
  local d_again = layer:backward(with(x, { dy = y }))
  local saving, _, saved = layer:forward(with(x, { save = true }))
  local d_saved = layer:backward(with(how, { saved = saved, dy = y }))
  local d_spent = layer:backward(with(how, { saved = saved, dy = y,
                                             spend = true }))
  expect(saved and saved.bytes == 0, "%s: nothing is saved, or spent", name)
  for what, tensor in pairs(with(d, { y = y })) do
    local second = what == "y" and again or d_again[what]
    local third = what == "y" and saving or d_saved[what]
    local fourth = d_spent[what] or third
    -- of one sequence of 64 tokens, kda's is 2 in a hundred off either way
    local off = how.plan and 2^-5 or 1e-2
    local most = what == "y" and off * tensor:to "cpu":maxabs() or 0
    expect(not flin.is_tensor(tensor)
           or (tensor:to "cpu" - second:to "cpu"):maxabs() == 0,
           "%s: %s differs from call to call", name, what)
    expect(not flin.is_tensor(tensor)
           or (tensor:to "cpu" - third:to "cpu"):maxabs() <= most,
           "%s: %s differs from what was saved", name, what)
    expect(not flin.is_tensor(tensor)
           or (third:to "cpu" - fourth:to "cpu"):maxabs() == 0,
           "%s: %s differs from what was spent", name, what)
  end
end

-- Gradients of weights are added to what float32 tensors hold.
local function adds(name, layer, sizes)
  local x = with(moved(layer:random(sizes), "cuda"), how)
  local dy = layer:forward(x)
  local d = layer:backward(with(x, { dy = dy }))
  local into, held = {}, {}
  for _, input in ipairs(layer.inputs) do
    local w = input.name
    if not input.axes:find "^t" then
      held[w] = flin.randn(x[w].shape)
      into[w] = held[w]:to "cuda"
    end
  end
  local found = layer:backward(with(x, { dy = dy, into = into }))
  expect(suite.relative(found.x, d.x:to "cpu") == 0, "%s: d_x beside sums",
         name)
  for w, tensor in pairs(into) do
    expect(suite.relative(tensor, held[w] + d[w]:to "cpu") < 1e-6,
           "%s: d_%s is not added up", name, w)
  end
end

-- From a loss of the final states alone.
local function of_states(name, layer, sizes)
  local x = layer:random(sizes)
  local _, state = layer:forward(x)
  local d = layer:backward(with(x, { dstate = state }))
  local there = layer:backward(with(with(moved(x, "cuda"), how),
                                    { dstate = moved(state, "cuda") }))
  for what, tensor in pairs(d) do
    if flin.is_tensor(tensor) then
      expect(suite.relative(there[what], tensor) < 2e-4,
             "%s, of its states alone: d_%s", name, what)
    end
  end
end

-- kda_layer with u added to the log gates, and these gates.
local function opened()
  local path = os.tmpname()
  local file <close> = assert(io.open "stdlib/layers/kda.lua")
  local text, inputs = file:read "a":gsub('"t d" }', '"t d", u = "t h k" }')
  local gates
  text, gates = text:gsub("g = %-flin.exp%(w.A_log%) %* step", "%0 + x.u")
  assert(inputs == 1 and gates == 1, "kda_layer is written otherwise")
  flin.save(path, text)
  local open = dofile(path)
  os.remove(path)
  return open, flin.layer {
    name = "gates", input = { x = "t d" },
    weight = { Wr = "d r", Wa = "r h k", A_log = "h", dt = "h k" },
    forward = function (x, w)
      local to = flin.dot(flin.dot(x.x, w.Wr), w.Wa) + w.dt
      return -flin.exp(w.A_log) * flin.softplus(to)
    end
  }
end

-- What a head's d_A_log sums, as magnitudes: of each token's gate, times what
-- each token from there on adds to the gate's gradient.
local function magnitudes(x)
  local layer, gates = opened()
  local g = gates:reference { x = x.x, Wr = x.Wr, Wa = x.Wa, A_log = x.A_log,
                              dt = x.dt }
  local B, T, H, K = table.unpack(g.shape)
  local du = layer:reference_backward(with(x, { u = flin.zeros(g.shape) })).u
  local sums = {}
  for h = 1, H do sums[h] = 0 end
  for b = 1, B do for h = 1, H do for k = 1, K do
    local behind, all = 0, 0
    for t = T, 1, -1 do
      local d = du[{ b, t, h, k }]
      all, behind = all + math.abs(d - behind), d
      sums[h] = sums[h] + math.abs(g[{ b, t, h, k }]) * all
    end
  end end end
  return sums
end

-- That gradient of kda_layer is off by a rounding of what it sums, no more.
local function gate_rates(layer, sizes)
  local x = layer:random(sizes)
  x.dy = layer:forward(x)
  local want = layer:reference_backward(x).A_log
  local got = layer:backward(moved(x, "cuda")).A_log:to "cpu"
  for h, all in ipairs(magnitudes(x)) do
    local off, may = math.abs(got[h] - want[h]), 2^-22 * all
    expect(off <= may and may < 0.05 * math.abs(want[h]), "kda: d_A_log of "
           .. "head %d, %.2e, is off by %.1e; roundings are %.1e", h, want[h],
           off, may)
  end
end

local sizes <const> = { d = 16, h = 2, k = 16, v = 16, r = 16, w = 4, s = 16,
                        e = 16, f = 16, g = 16 }
local function sizes_of(layer, more)
  local s = {}
  for axis, n in pairs(sizes) do
    s[axis] = layer.axes[axis] ~= nil and n or nil
  end
  return with(s, more)
end

-- As they are, and in pieces: of tokens, of batch entries.
local function in_pieces(name, layer)
  for B = 1, 2 do
    check(name, layer, sizes_of(layer, with(how, { B = B, T = 64,
                                                   dtype = "float32" })))
    local sizes = sizes_of(layer, { B = B, T = 64, dtype = "bfloat16" })
    lives(name, layer, sizes)
  end
  if name ~= "kda" then                 -- whose d_dt cancels, whole as well
    check(name, layer, sizes_of(layer, with(how, { B = 2, T = 64,
                                                   dtype = "bfloat16" })))
  end
  local sizes = sizes_of(layer, { B = 1, T = 64, dtype = "bfloat16" })
  local x = moved(layer:random(sizes), "cuda")
  local _, _, whole = layer:forward(with(x, { save = true, chunk = 16 }))
  local _, _, cut = layer:forward(with(with(x, how), { save = true }))
  expect(whole.bytes ~= cut.bytes, "%s: it is not cut: %d bytes", name,
         cut.bytes)
  adds(name, layer, sizes_of(layer, { B = 1, T = 32, dtype = "float32" }))
  of_states(name, layer, sizes_of(layer, { B = 1, T = 64, dtype = "float32" }))
end

-- What is done with a layer, in any order.
local function cases_of(name, layer)
  local cases = {}
  local function case(f, size)
    table.insert(cases, function ()
      f(name, layer, sizes_of(layer, size))
    end)
  end
  if over then
    for _, plan in ipairs { "separate", "fused" } do
      case(check, { dtype = "bfloat16", plan = plan,
                    cu_seqlens = { 0, 5, 5, 70, 71, 200 } })
    end
    return cases
  end
  for _, dtype in ipairs { "float32", "bfloat16" } do
    case(check, { B = 2, T = 70, dtype = dtype })
  end
  for _, plan in ipairs { "separate", "fused" } do
    case(check, { dtype = "float32", plan = plan,
                  cu_seqlens = { 0, 5, 5, 70, 71 } })
    case(check, { B = 2, T = 70, plan = plan, dtype = "bfloat16" })
  end
  case(lives, { B = 2, T = 70, dtype = "bfloat16" })
  case(adds, { B = 2, T = 21, dtype = "float32" })
  case(of_states, { B = 2, T = 70, dtype = "float32" })
  if name == "kda" then
    case(function (_, _, size) gate_rates(layer, size) end,
         { B = 2, T = 70, dtype = "float32" })
  end
  if name == "mamba2" then              -- a norm over many heads
    case(check, { T = 21, h = 16, d = 4, k = 8, dtype = "float32" })
  end
  if large then
    case(check, { B = 2, T = 200, d = 256, h = 4, k = 64, v = 128,
                  dtype = "bfloat16" })
  end
  return cases
end

for name, layer in pairs(how.plan and {} or flin.layers) do
  for i, run in ipairs((not only or only[name]) and cases_of(name, layer)
                       or {}) do
    if i % shares == share then run() end
  end
end

for name, layer in pairs(how.plan and flin.layers or {}) do
  if not only or only[name] then in_pieces(name, layer) end
end
if how.plan then only = {} end          -- and nothing else

-- Taps that are computed from weights, as many as x is wide.
if not only or only.taps then
  check("taps", flin.layer {
    name = "taps", input = { x = "t d" },
    weight = { Wv = "d h k", taps = "h k w", Wo = "h k d" },
    forward = function (x, w)
      local v = flin.conv(flin.dot(x.x, w.Wv), flin.tanh(w.taps))
      return flin.dot(v, w.Wo)
    end
  }, { B = 2, T = 13, d = 4, h = 2, k = 8, w = 4, dtype = "float32" })
end

-- A product that is added to another value: to what goes on beside it, forward
-- and back; where the two lie otherwise, or one of them is of heads.
if not only or only.onto then
  local dot <const> = flin.dot
  local onto = flin.layer {
    name = "onto", input = { x = "t d", past = "t e" },
    weight = { a = "d", W = "d h k", V = "h k e", U = "e h k" },
    forward = function (x, w)
      local z = flin.silu(dot(flin.rms_norm(x.x, "d") * w.a, w.W))
      local y = x.past + dot(z, w.V)
      return dot(z + dot(y, w.U), w.V) + y
    end
  }
  local plan = onto:plan { d = 8, e = 8, h = 2, k = 8, machine = "h200" }
  local _, times = tostring(plan):gsub("in the product of", "")
  expect(times == 3, "onto: %d of 3 sums by their products", times)
  for _, dtype in ipairs { "float32", "bfloat16" } do
    check("onto", onto, { B = 2, T = 13, d = 8, e = 8, h = 2, k = 8,
                          dtype = dtype })
    check("onto", onto, { T = 13, d = 5, e = 3, h = 2, k = 7, dtype = dtype,
                          cu_seqlens = { 0, 5, 5, 13 } })
  end
  local x = moved(onto:random { B = 2, T = 16, d = 8, e = 8, h = 2, k = 8,
                                dtype = "bfloat16" }, "cuda")
  local y, wide = onto:forward(x), flin.zeros { 2, 16, 16 }:to(x.past.dtype)
  wide:narrow(3, 1, 8):copy(x.past:to "cpu")
  local own = wide:to "cuda":narrow(3, 1, 8)
  expect(suite.relative(onto:forward(with(x, { past = own })), y:to "cpu")
         == 0, "onto: what goes on is part of a wider tensor")
end

-- Products whose weights lie beside one another, by columns or by rows, only
-- seem to, or are copied into the call's type: what those of their own give.
local function as_one(how, dtype)
  local layer, names = flin.layers.gated_deltanet, { "Wq", "Wk", "Wv", "Wg" }
  local x = layer:random(sizes_of(layer, { B = 2, T = 21, dtype = "bfloat16" }))
  for name, tensor in pairs(x) do x[name] = tensor:to "bfloat16" end
  local dy = layer:forward(x):to "cuda"
  local apart, beside = moved(x, "cuda"), {}
  local y = layer:forward(apart)
  local wanted = layer:backward(with(apart, { dy = dy }))
  for name, tensor in pairs(x) do
    beside[name] = tensor:to(name == "x" and "bfloat16" or dtype):to "cuda"
  end
  local d, h, k = table.unpack(x.Wq.shape)
  local all = flin.zeros { d, #names * h, k }:to(dtype)
  local function columns(of, i)
    local at = how == "others" and #names - i or i - 1
    return of:narrow(2, at * h + 1, h)
  end
  for i, name in ipairs(names) do columns(all, i):copy(x[name]) end
  if how == "rows" then
    all = all:transpose(1, 2):transpose(2, 3):contiguous():to "cuda"
    all = all:transpose(2, 3):transpose(1, 2)
  else
    all = all:to "cuda"
  end
  for i, name in ipairs(how and names or {}) do
    beside[name] = columns(all, i)
  end
  expect(suite.relative(layer:forward(beside), y:to "cpu") < 1e-2,
         "as one, %s, %s: y", how, dtype)
  local there = layer:backward(with(beside, { dy = dy }))
  local _, _, saved = layer:forward(with(beside, { save = true }))
  local from_saved = layer:backward { saved = saved, dy = dy }
  for name, tensor in pairs(wanted) do
    if flin.is_tensor(tensor) then
      expect(suite.relative(there[name], tensor:to "cpu") < 2e-2,
             "as one, %s, %s: d_%s", how, dtype, name)
      expect(suite.relative(from_saved[name], there[name]:to "cpu") == 0,
             "as one, %s, %s: d_%s from what was saved", how, dtype, name)
    end
  end
end

-- All weights that the layer says may lie beside one another do, and so do the
-- sums that their gradients are added to.
local function laid(of, layer)
  local t = moved(of, "cuda")
  for _, names in ipairs(layer.beside) do
    local d, columns, all, at = of[names[1]].shape[1], {}, 0, 1
    for i, name in ipairs(names) do
      local w = of[name]:transpose(1, 2)
      if #w.shape == 3 then w = w:transpose(2, 3) end
      local n = w.shape[1] * (#w.shape == 3 and w.shape[2] or 1)
      columns[i] = w:contiguous():reshape { n, d }
      all = all + n
    end
    local flat = flin.zeros { all, d }:to(of[names[1]].dtype)
    for _, part in ipairs(columns) do
      flat:narrow(1, at, part.shape[1]):copy(part)
      at = at + part.shape[1]
    end
    flat, at = flat:to "cuda", 1
    for i, name in ipairs(names) do
      local w, n = of[name], columns[i].shape[1]
      local part = flat:narrow(1, at, n)
      at = at + n
      if #w.shape == 3 then
        part = part:reshape { w.shape[2], w.shape[3], d }
        t[name] = part:transpose(2, 3):transpose(1, 2)
      else
        t[name] = part:transpose(1, 2)
      end
    end
  end
  return t
end

local function as_laid(name, layer)
  local x = layer:random(sizes_of(layer, { B = 2, T = 21, h = 8,
                                           dtype = "bfloat16" }))
  for n, tensor in pairs(x) do x[n] = tensor:to "bfloat16" end
  local apart, beside = moved(x, "cuda"), laid(x, layer)
  local y = layer:forward(apart)
  expect(suite.relative(layer:forward(beside), y:to "cpu") < 1e-2,
         "%s, beside: y", name)
  local wanted = layer:backward(with(apart, { dy = y }))
  local there = layer:backward(with(beside, { dy = y }))
  local held = {}
  for n, tensor in pairs(wanted) do
    if flin.is_tensor(tensor) and n ~= "x" then
      held[n] = flin.randn(tensor.shape)
    end
  end
  local into = laid(held, layer)
  local sums = layer:backward(with(beside, { dy = y, into = into }))
  expect(suite.relative(sums.x, there.x:to "cpu") == 0, "%s, beside: d_x, "
         .. "beside sums", name)
  for n, tensor in pairs(wanted) do
    if flin.is_tensor(tensor) then
      expect(suite.relative(there[n], tensor:to "cpu") < 2e-2,
             "%s, beside: d_%s", name, n)
    end
    if held[n] then
      local d = into[n]:to "cpu" - held[n]
      expect(suite.relative(d, there[n]:to "cpu") < 1e-2,
             "%s, beside: d_%s is not added up", name, n)
    end
  end
end

for name, layer in pairs(over and {} or flin.layers) do
  if only and only.joint or share == 0 and (not only or only[name]) then
    as_laid(name, layer)
  end
end

if not only or only.joint or only.one then
  as_one("columns", "bfloat16")
  as_one("rows", "bfloat16")
  as_one("others", "bfloat16")
  as_one("rows", "float32")
  as_one(nil, "float32")
end

suite.finish()
