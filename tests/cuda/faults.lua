-- A GPU that is not there or fails, and tensors on it: what is said, and what
-- still works afterwards. Runs itself with a driver that fails on request
-- (tests/cuda/fake).
--   LD_PRELOAD=fake/libcuda.so.1:fake/libnvrtc.so.13 flin tests/cuda/faults.lua
local flin = require "flin"
local suite = require "suite"
local expect = suite.expect

-- f must fail with a message that has this in it.
local function refused(what, f, ...)
  local ok, message = pcall(f, ...)
  expect(not ok and tostring(message):find(what, 1, true),
         "'%s' is not in: %s", what, message)
end

local v = flin.stdlib.simple_gla
local function inputs(T, device, D)
  D = D or 16
  local x = { q = flin.randn(1, T, 2, D), k = flin.randn(1, T, 2, D),
              v = flin.randn(1, T, 2, D),
              g = flin.randn(1, T, 2):map(function (u) return -u * u end) }
  for name, t in pairs(x) do x[name] = t:to(device or "cpu") end
  return x
end

-- ---- what the other processes do; the last line is theirs to say ----

local acts = {}

function acts.wrong()
  refused("the kernel that was compiled for this GPU gets y wrong",
          v.forward, v, inputs(20, "cuda"))
  refused("it is not used", v.forward, v, inputs(20, "cuda"))
  local y = v:forward(inputs(20))
  expect(y:maxabs() > 0, "the CPU still works")
end

-- Decays are wrong here, of which a head that forgets nothing, and whose sums
-- are far larger, shows nothing.
function acts.forgetful()
  local x = inputs(20)
  for name, t in pairs(x) do
    x[name] = (name == "g" and t or t:to "bfloat16"):to "cuda"
  end
  refused("gets y wrong", v.forward, v, x)
end

-- Products are coarser here than float32's, or exponentials.
function acts.coarse()
  pcall(v.forward, v, inputs(70, "cuda", 32))     -- what is said is looked at
end

-- Something is not waited for here, or not fenced: slots go back, and the copy
-- engine may overtake reads.
function acts.unfenced()
  local x = inputs(600, "cpu", 64)
  for name, t in pairs(x) do
    x[name] = (name == "g" and t or t:to "bfloat16"):to "cuda"
  end
  pcall(v.forward, v, x)                -- what is said is looked at
end

-- What a walk of training leaves, whose fence is in the role that stores it.
function acts.unfenced_store()
  local x = inputs(130, "cpu", 64)
  for name, t in pairs(x) do
    x[name] = (name == "g" and t or t:to "bfloat16"):to "cuda"
  end
  x.save = true
  local ok, y, _, saved = pcall(v.forward, v, x)
  if ok then pcall(v.backward, v, { saved = saved, dy = y }) end
end

local function another_is_right(D)
  local x = inputs(80, "cpu", D)
  local want = v:reference(x)
  for name, t in pairs(x) do
    x[name] = (name == "g" and t or t:to "bfloat16"):to "cuda"
  end
  expect(suite.relative(v:forward(x), want) < 1e-2, "another kernel is right")
end

-- Hopper's kernels do nothing here: those for any GPU run instead.
function acts.aside() another_is_right(16) end

-- Kernels for few heads, whose blocks share a sequence, do nothing here: those
-- for many run instead.
function acts.few() another_is_right(128) end

-- The first schedule is one that ptxas serialises: the next leaves threads more
-- registers.
function acts.roomier()
  local deltanet = flin.stdlib.deltanet
  local x = deltanet:random { B = 1, T = 70, H = 2, K = 128, V = 128,
                              dtype = "bfloat16" }
  local off = suite.relative(deltanet:forward(suite.on_gpu(x)),
                             deltanet:reference(x))
  expect(off <= 6e-3, "with more registers y is off by %.1e", off)
end

-- Kernels for chunks of 64 tokens do nothing here: others run instead, forward
-- and back.
function acts.fewer()
  local host, dy = inputs(80), flin.randn(1, 80, 2, 16)
  local there = suite.on_gpu(host)
  expect(suite.relative(v:forward(there), v:reference(host)) < 1e-4, "y")
  there.save = true
  local _, _, saved = v:forward(there)
  local got = v:backward { saved = saved, dy = dy:to "cuda" }
  host.dy = dy
  local want = v:reference_backward(host)
  for _, name in ipairs { "q", "k", "v", "g" } do
    expect(suite.relative(got[name], want[name]) < 1e-4, "d_%s", name)
  end
end

function acts.broken()
  local x = inputs(20, "cuda")
  local y = v:forward(x)
  local ok, said = pcall(function () v:forward(x) return y:to "cpu" end)
  expect(not ok and said:find "ILLEGAL_ADDRESS %(700%)"
         and said:find "kernel k0_%l+ of simple_gla"
         and said:find "20 tokens, 2 heads, k = 16, v = 16, float32", said)
  local _, again = pcall(v.forward, v, x)
  expect(said:match "CUDA:[^\n]*" == tostring(again):match "CUDA:[^\n]*",
         "it is said again: %s", again)
  refused("has ended this process's work", x.q.to, x.q, "cpu")
  expect(v:forward(inputs(20)):maxabs() > 0, "the CPU still works")
end

function acts.full()
  local x = inputs(20, "cuda")
  local y = v:forward(x)
  refused("the GPU is out of memory", function ()
    return flin.zeros(1 << 22):to "cuda"
  end)
  refused("out of memory", v.forward, v,
          { q = flin.randn(1, 40000, 2, 16), k = flin.randn(1, 40000, 2, 16),
            v = flin.randn(1, 40000, 2, 16), g = flin.zeros(1, 40000, 2),
            backend = "cuda" })
  local z = v:forward(x)
  expect((y:to "cpu" - z:to "cpu"):maxabs() == 0, "smaller calls still work")
end

function acts.absent()
  local gpu, why = flin.cuda()
  expect(not gpu and why:find "libcuda.so.1 is not there", why)
  local x = inputs(5)
  x.backend = "cuda"
  refused("libcuda.so.1 is not there", v.forward, v, x)
  refused("libcuda.so.1 is not there", x.q.to, x.q, "cuda")
  refused("help: NVIDIA's driver brings it", x.q.to, x.q, "cuda")
  expect(v:forward(inputs(5)).device == "cpu", "the CPU takes what is there")
end

-- A launch takes 5 ms here, and the host does not wait for it.
function acts.slow()
  local b = v:bench { backend = "cuda", T = 20, H = 1, K = 16, V = 16,
                      seconds = 0 }
  expect(b.gpu == "no GPU" and b.copy > 1e6, "%s: %g", b.gpu, b.copy)
  for _, row in ipairs(b.rows) do
    local launches = row.name == "forward + backward" and 2 or 1
    expect(row.seconds > 5e-3 * launches and row.seconds < 4,
           "%s: %g s", row.name, row.seconds)
  end
  expect(#b.rows == 5 and tostring(b):find "of a copy on no GPU", "%s",
         tostring(b))
  b = v:bench { backend = "cuda", T = 20, H = 1, K = 16, V = 16, seconds = 0,
                dtype = "bfloat16", backward = false }
  expect(#b.rows == 3, "other types, too")
end

-- Every kernel once; a second process takes them from the cache.
function acts.cached()
  local x = inputs(20, "cuda")
  v:forward(x)
  v:step { q = x.q:narrow(2, 1, 1), k = x.k:narrow(2, 1, 1),
           v = x.v:narrow(2, 1, 1), g = x.g:narrow(2, 1, 1) }
  expect(true, "")
end

function acts.open()
  local x = inputs(1, "cuda")
  v:step { q = x.q, k = x.k, v = x.v, g = x.g }
  local gpu = flin.cuda()
  expect(gpu.cache == "" and gpu.cache_refused:find("written by others", 1,
         true), "why there is no cache: %s", gpu.cache_refused)
end

function acts.decoded()
  local x = inputs(1, "cuda")
  v:step { q = x.q, k = x.k, v = x.v, g = x.g }
  expect(true, "")
end

if acts[...] then
  acts[...]()
  suite.finish()
end

-- ---- each in a process of its own ----

local program = arg[-1]
for i = -1, -20, -1 do
  if not arg[i] then break end
  program = arg[i]
end
local folder = os.tmpname()
os.remove(folder)

local function said(act, env)
  local pipe = io.popen(("env %s '%s' '%s' %s 2>&1"):format(env, program,
                                                          arg[0], act))
  local text = pipe:read "a"
  pipe:close()
  return text
end

local function run(act, env)
  local text = said(act, env)
  local p, f = text:match "(%d+) passed, (%d+) failed\n$"
  expect(f == "0" and p ~= "0", "%s: %s", act, text)
  return text
end

local function compiled(file)
  local f = io.open(file)
  local n = f and #f:read "a" or 0
  if f then f:close() end
  return n
end

run("wrong", "FLIN_CACHE=off FAKE_IDLE=0")
run("forgetful", "FLIN_CACHE=off 'FAKE_SPOILT=a * LOG2E=>a * 1.6f'")
for edit, schedule in pairs {
  ["product8(c, al, bh);=>;"] = 1, ["product8(c, ah, bl);=>;"] = 1,
  ["mma_tf32(c, small, b0, b1);=>;"] = 0, ["a * LOG2E=>a * 1.443f"] = 0,
} do
  local text = said("coarse", ("FLIN_CACHE=off FLIN_SCHEDULE=%d "
                               .. "'FAKE_SPOILT=%s'"):format(schedule, edit))
  expect(text:find "gets %a+ wrong %(by %d%.%de%-0[345]%)", "%s: %s", edit,
         text)
end
do
  local text = said("unfenced", "FLIN_CACHE=off FAKE_ARCH=9 'FAKE_SPOILT="
    .. "fence_async();\n                arrive(=>                arrive('")
  expect(text:find("not fenced when ", 1, true), "a fence left out: %s", text)
end
do
  local text = said("unfenced_store", "FLIN_CACHE=off FAKE_ARCH=9 "
    .. "FAKE_PROCESSORS=3 'FAKE_SPOILT=fence_copied();=>;'")
  local _, n = text:gsub("not fenced when written", "")
  expect(n > 1, "whoever stores does not fence: %s", text)
  text = said("unfenced_store", "FLIN_CACHE=off FAKE_ARCH=9 "
    .. "FAKE_PROCESSORS=3")
  expect(not text:find "FAIL", "whoever stores fences: %s", text)
end
-- Of sums in tensor memory.
for edit, what in pairs {
  ["tensor_stored();\n=>\n"] = "not fenced when written",
  ["tensor_loaded();\n=>\n"] = "not fenced when read",
  ["tensor_before();\n    warpgroup=>warpgroup"] = "not fenced when written",
  ["warpgroup_sync();\n    tensor_after();=>warpgroup_sync();"] =
    "not fenced when written",
  ["products_begin();\n=>\n"] = "tensor memory at lane 0",
  ["wait(t.ended, t.times++ & 1);=>"] = "read while it is written by products",
  ["++ & 1);\n    tensor_after();=>++ & 1);"] =
    "read while it is written by products",
  ["tensor_commit(t.ended);=>;"] = "no thread can go on",
  ["5 & 3) << 21); }=>5 & 3) << 20); }"] = "lanes that the warp does not reach",
  ["+ (group & 1) * (16 << 16)=>"] = "written twice by products",
  ["< 32)\n        tensor_alloc=>< 0)\n        tensor_alloc"] =
    "columns that the block has not",
  ["< 32)\n        tensor_free=>< 0)\n        tensor_free"] =
    "gives no columns back",
  ["(u64)1 << 46=>(u64)0 << 46"] = "no such product",
} do
  local text = said("unfenced", ("FLIN_CACHE=off FAKE_ARCH=10 "
                                 .. "'FAKE_SPOILT=%s'"):format(edit))
  expect(text:find(what, 1, true), "%s: %s", edit, text)
end
run("broken", "FLIN_CACHE=" .. folder .. " FAKE_BROKEN=7")
run("full", "FLIN_CACHE=" .. folder .. " FAKE_MEMORY=4000000")
run("absent", "-u LD_PRELOAD")
local count = folder .. ".count"
run("cached", ("FLIN_CACHE=%s FAKE_SOURCES=%s"):format(folder, count))
expect(compiled(count) == 1, "a kernel is in the cache, %d were compiled",
       compiled(count))
run("cached", ("FLIN_CACHE=%s FAKE_SOURCES=%s"):format(folder, count))
expect(compiled(count) == 1, "all are in the cache")
-- Where registers spill the source is printed again, with more of them for a
-- thread; what is found then is known to the next process.
for spills, sources in pairs { [1] = 2, [3] = 3 } do
  os.execute("rm -rf '" .. folder .. "' '" .. count .. "'")
  for turn = 1, 2 do
    run("decoded", ("FLIN_CACHE=%s FAKE_SOURCES=%s FAKE_SPILLS=THREADS "
                    .. "FAKE_SPILLED=%d"):format(folder, count, spills))
    expect(compiled(count) == sources, "%d spill: %d sources compiled", spills,
           compiled(count))
  end
end
-- Others may write into the folder: it is said once, and nothing kept there.
os.execute(("rm -rf '%s' '%s'; mkdir -m 777 '%s'"):format(folder, count,
                                                        folder))
for turn = 1, 2 do
  local text = run("open", ("FLIN_CACHE=%s FAKE_SOURCES=%s"):format(folder,
                                                                    count))
  expect(select(2, text:gsub("may be written by others", "")) == 1,
         "it is said once: %s", text)
  expect(compiled(count) == turn, "an open folder: %d were compiled",
         compiled(count))
end
os.execute("rm -rf '" .. folder .. "'")
-- What was found wrong is known to the next process, and not compiled again.
for act, fault in pairs { wrong = "FAKE_IDLE=0",
                          aside = "FAKE_WRONG=wgmma.cuh",
                          fewer = "'FAKE_WRONG=first_slot(a.run, s, 64)'" } do
  os.execute("rm -rf '" .. folder .. "' '" .. count .. "'")
  local env = ("FAKE_ARCH=9 FLIN_CACHE=%s FAKE_SOURCES=%s "):format(folder,
                                                                    count)
  if act == "fewer" then env = env .. "FLIN_SCHEDULE=0 " end
  local text = run(act, env .. fault)
  expect(act == "wrong" or select(2, text:gsub("runs in its place", "")) > 0,
         "%s: nothing is said: %s", act, text)
  local sources = compiled(count)
  expect(sources > 0, "%s: nothing was compiled", act)
  for _, more in ipairs { fault, "" } do
    run(act, env .. more)
    expect(compiled(count) == sources, "%s: %d sources compiled, then %d", act,
           sources, compiled(count))
  end
end
os.execute("rm -f '" .. count .. "'")
local text = run("few", ("FLIN_CACHE=off FAKE_ARCH=9 FAKE_PROCESSORS=132 "
                         .. "FAKE_SOURCES=%s "
                         .. "FAKE_COUNTED=tile.cuh "
                         .. "'FAKE_WRONG=find_walk<2, true>'"):format(count))
expect(text:find "runs in its place", "few heads: nothing is said: %s", text)
expect(compiled(count) == 0, "few heads: kernels for any GPU are compiled")
-- The same where ptxas does not take them: it is said which, why, and once.
text = run("few", "FLIN_CACHE=off FAKE_ARCH=9 FAKE_PROCESSORS=132 "
                  .. "'FAKE_SERIAL=find_walk<2, true>'")
expect(select(2, text:gsub("for few heads %(.-C7512.-run in their place", ""))
       == 1, "what is refused is said once: %s", text)
os.execute("rm -f '" .. count .. "'")
-- On one core: idle ones compile what is tried next before it is known that it
-- is. What is taken does not depend on them.
local core <const> = io.open "/proc/self/status":read "a"
                       :match "Cpus_allowed_list:%s*(%d+)"
text = run("roomier", ("FLIN_CACHE=off FAKE_ARCH=9 FAKE_PROCESSORS=3 "
                       .. "FAKE_SERIAL=schedule.cuh FAKE_SERIALISED=1 "
                       .. "FAKE_SOURCES=%s taskset -c %s"):format(count, core))
expect(not text:find "in its place" and not text:find "in their place",
       "a schedule with more registers is none: %s", text)
expect(compiled(count) == 2, "serialised, and once more: %d sources",
       compiled(count))
-- What roles spill is dear: they are dealt otherwise; the next process knows.
-- But not the little that a walk spills.
for bytes, sources in pairs { [8000] = 2, [300] = 1 } do
  for _, alone in ipairs { "taskset -c " .. core, "" } do
    os.execute("rm -rf '" .. folder .. "' '" .. count .. "'")
    local first
    for turn = 1, 2 do
      run("roomier", ("FLIN_CACHE=%s FAKE_ARCH=9 FAKE_PROCESSORS=3 "
                      .. "FAKE_SPILLS=schedule.cuh FAKE_SPILLED=each "
                      .. "FAKE_SPILLED_BYTES=%d FAKE_SOURCES=%s %s")
                     :format(folder, bytes, count, alone))
      first = first or compiled(count)
      expect(compiled(count) == first and first >= sources
             and (alone == "" or first == sources),
             "%d bytes spilled, %s turn %d: %d sources", bytes, alone, turn,
             compiled(count))
    end
  end
end
run("slow", "FAKE_LATER=5000 FLIN_CACHE=" .. folder)
os.execute("rm -rf '" .. folder .. "' '" .. count .. "'")

-- ---- :sass: disassemblers that say what they were given ----

local function write(path, text)
  local f <close> = assert(io.open(path, "w"))
  f:write(text)
end

-- What the prompt says where the two end like this.
local function sass(nvdisasm, cuobjdump)
  for name, status in pairs { nvdisasm = nvdisasm, cuobjdump = cuobjdump } do
    write(folder .. "/" .. name, ('#!/bin/sh\necho "%s $1 $(wc -c <"$2")"\n'
          .. 'echo "$2" >>"%s/seen"\nexit %d\n'):format(name, folder, status))
  end
  local line = "echo ':sass linear K=16 V=16 arch=sm_80' | PATH='%s':$PATH '%s'"
  local pipe = io.popen((line .. " 2>&1"):format(folder, program))
  local text = pipe:read "a"
  pipe:close()
  return text
end

os.execute(("mkdir '%s'; touch '%s/nvdisasm' '%s/cuobjdump'; chmod +x '%s'/*")
           :format(folder, folder, folder, folder))
local text = sass(0, 0)
expect(tonumber(text:match "^nvdisasm %-c (%d+)\n$" or 0) > 1000, text)
text = sass(1, 0)
expect(tonumber(text:match "^cuobjdump %-sass (%d+)\n$" or 0) > 1000, text)
text = sass(1, 1)
expect(text:find("^sass: no disassembler: neither nvdisasm nor cuobjdump"),
       text)
for path in io.lines(folder .. "/seen") do
  local f = io.open(path)
  expect(not f, "%s is left behind", path)
end
os.execute("rm -rf '" .. folder .. "'")

-- ---- the sandbox ----

do
  local line = ("'%s' --sandbox -e 'local c = require(\"flin\").cuda "
    .. "print(c().name ~= nil, c().cache, c().nvrtc_path, "
    .. "(pcall(c, { poison = true })))'"):format(program)
  local pipe = io.popen(line)
  local said = pipe:read "a"
  pipe:close()
  expect(said == "true\tnil\tnil\tfalse\n", "cuda in a sandbox: %s", said)
end

-- ---- tensors ----

local t = flin.randn(3, 4, 20)
local d = t:to "cuda"
expect(d.device == "cuda" and t.device == "cpu", "a tensor says where it is")
expect(d:to "cuda" == d or d:to("cuda").device == "cuda", "it stays there")
expect((d:to "cpu" - t):maxabs() == 0, "there and back")
expect((d:transpose(1, 3):narrow(1, 2, 5):to "cpu"
        - t:transpose(1, 3):narrow(1, 2, 5)):maxabs() == 0, "a view of it")
expect(d[{ 2, 3, 4 }] == t[{ 2, 3, 4 }] and d[2][3][4] == t[2][3][4],
       "an element")
expect(tostring(d) == tostring(t):gsub("float32", "float32 cuda", 1),
       "it is printed alike: %s", d)
expect(#d == 3 and d.count == 240 and d:reshape(12, -1).shape[2] == 20,
       "what needs no numbers works")
for _, name in ipairs { "sum", "clone", "totable", "maxabs" } do
  refused('t:to("cpu")', function () return d[name](d) end)
end
refused('t:to("cpu")', function () return d + d end)
refused('t:to("cpu")', function () d[{ 1, 1, 1 }] = 0 end)
refused('t:to("cpu")', function () return d:to "bfloat16" end)

-- ---- calls ----

local x = inputs(70, "cuda")
local y, state = v:forward(x)
expect(y.device == "cuda" and state.S.device == "cuda", "results are there")
local mixed = inputs(70, "cuda")
mixed.k = mixed.k:to "cpu"
refused("is on the", v.forward, v, mixed)
x.backend = "cpu"
refused("the tensors are on the GPU, where 'cpu' cannot run", v.forward, v, x)
x.backend = nil
refused("the tensors are on the GPU", v.reference, v, x)
x.dy = flin.randn(1, 70, 2, 16)
refused("dy is on the CPU", v.backward, v, x)
x.dy = x.dy:to "cuda"
expect(v:backward(x).q.device == "cuda", "gradients are there")
x.dy = nil
x.save = true
do
  local _, _, saved = v:forward(x)
  local dy = flin.randn(1, 70, 2, 16):to "cuda"
  local q = v:backward { saved = saved, dy = dy }.q
  x.save, x.dy = nil, dy
  expect(saved.bytes > 0 and (q:to "cpu" - v:backward(x).q:to "cpu"):maxabs()
         == 0, "saved works there")
end
x.dy = nil
local numbers = flin.variant {
  name = "numbers", input = { v = "t", a = "" }, state = { s = "" },
  step = function (i, s)
    local next = s.s * i.a + i.v
    return { s = next }, next
  end,
}
local z = numbers:forward { v = flin.full({ 1, 3, 1 }, 1):to "cuda", a = 0.5 }
expect(math.abs(z[{ 1, 3, 1 }] - 1.75) < 1e-6, "a number follows: %s", z)

-- Token by token, gradients take segments of 64 tokens, the last first.
local serial = flin.variant {
  name = "serial", input = { v = "t v", a = "v" }, state = { s = "v" },
  step = function (i, s)
    local next = flin.tanh(s.s) * i.a + i.v
    return { s = next }, next
  end,
}
do
  local here = serial:random { B = 1, T = 150, H = 2, V = 5 }
  here.dy = flin.randn(1, 150, 2, 5)
  local there = {}
  for name, t in pairs(here) do there[name] = t:to "cuda" end
  local want, got = serial:backward(here), serial:backward(there)
  for _, name in ipairs { "v", "a" } do
    expect((got[name]:to "cpu" - want[name]):maxabs() < 1e-4,
           "a serial step's d_%s", name)
  end
end

-- Memory goes back when its tensor is collected.
x, y, state, z, d, mixed = nil, nil, nil, nil, nil, nil
collectgarbage()
collectgarbage()
local gpu = flin.cuda()
expect(gpu.used == 0 and gpu.kept > 0, "%d bytes are still in use", gpu.used)

suite.finish()
