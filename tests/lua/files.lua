-- Files of tensors: what is saved is loaded; what is not sound is refused.
local flin = require "flin"
local count = require "support.count"
local expect <const> = count.expect
local path = os.tmpname()

local function same(a, b, what)
  local ok = a.dtype == b.dtype and a.rank == b.rank and a.count == b.count
  for k, n in ipairs(a.shape) do
    ok = ok and b.shape[k] == n
  end
  expect(ok and (a.count == 0 or (a - b):maxabs() == 0), what)
end

local function write(bytes)
  local f <close> = assert(io.open(path, "wb"))
  f:write(bytes)
end

local function refuses(message, bytes)
  write(bytes)
  local ok, got = pcall(flin.load, path)
  expect(not ok and got:find(message, 1, true),
         "wanted '" .. message .. "', got " .. tostring(got))
end

-- ---- .npy ----

for _, dtype in ipairs { "float32", "float16", "float64" } do
  for _, shape in ipairs { { 2, 3, 4 }, { 5 }, {}, { 0, 3 } } do
    local t = flin.randn(shape, { dtype = dtype })
    flin.save(path, t)
    same(flin.load(path), t, ".npy of " .. tostring(t))
  end
end
local turned = flin.randn(3, 4):transpose(1, 2)
flin.save(path, turned)
same(flin.load(path), turned, ".npy of a view")
expect(not pcall(flin.save, path, flin.zeros(2, { dtype = "bf16" })),
       "bfloat16 in .npy")
same(flin.load(path), turned, "a failed save leaves the old file")
expect(not io.open(path .. ".part"), "a failed save leaves nothing else")

local function npy(header, data, version)
  local pad = (version or 1) == 1 and "<I2" or "<I4"
  return "\x93NUMPY" .. string.char(version or 1, 0)
         .. string.pack(pad, #header) .. header .. (data or "")
end
local function header(descr, order, shape)
  return ("{'descr': %s, 'fortran_order': %s, 'shape': %s, }\n")
         :format(descr, order, shape)
end
local two = string.pack("<ff", 1, 2)
write(npy(header("'<f4'", "False", "(2,)"), two, 2))
expect(flin.load(path)[2] == 2, "version 2")
write(npy(header("'<f4'", "True", "(2, 3)"),
          string.pack("<ffffff", 1, 2, 3, 4, 5, 6)))
expect(flin.load(path)[{ 1, 3 }] == 5, "Fortran's order")

local good = npy(header("'<f4'", "False", "(2,)"), two)
for cut = 0, #good - 1 do
  write(good:sub(1, cut))
  expect(not pcall(flin.load, path), "cut to " .. cut .. " bytes")
end
refuses("dtype '<i2'", npy(header("'<i2'", "False", "(2,)"), two))
refuses("dtype '>f4'", npy(header("'>f4'", "False", "(2,)"), two))
refuses("dtype 'O'", npy(header("'O'", "False", "(2,)"), two))
refuses("version 9", npy(header("'<f4'", "False", "(2,)"), two, 9))
refuses("where its shape wants 12", npy(header("'<f4'", "False", "(3,)"), two))
refuses("where its shape wants 4", npy(header("'<f4'", "False", "()"), two))
refuses("where its shape wants", npy(header("'<f4'", "False",
        "(4611686018427387903, 4)"), two))
refuses("too large", npy(header("'<f4'", "False",
        "(99999999999999999999,)"), two))
refuses("more than 8 axes", npy(header("'<f4'", "False",
        "(1,1,1,1,1,1,1,1,1)"), two))
refuses("lacks a number", npy(header("'<f4'", "False", "(-2,)"), two))
refuses("lacks a 'F'", npy(header("'<f4'", "Maybe", "(2,)"), two))
refuses("unknown or there twice", npy("{'descr': '<f4', 'descr': '<f4'}"))
refuses("unknown or there twice", npy("{'__class__': 'os'}"))
refuses("lacks descr", npy("{'descr': '<f4'}"))
refuses("a header of", "\x93NUMPY\2\0\xff\xff\xff\xff" .. good)

-- ---- .safetensors ----

local t = { a = flin.randn(2, 3), ["b \"\n\\é"] = flin.ones({ 4 },
            { dtype = "bf16" }), c = flin.zeros({ 0, 2 }, { dtype = "f64" }),
            d = flin.full({}, 7, { dtype = "f16" }), e = turned }
flin.save(path, t)
local loaded = flin.load(path)
for name, tensor in pairs(t) do
  same(loaded[name], tensor, "tensor " .. name)
end
flin.save(path, {})
expect(next(flin.load(path)) == nil, "no tensors")

local function safe(json, data)
  return string.pack("<I8", #json) .. json .. (data or "")
end
write(safe('{"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},' ..
           '"__metadata__":{"by":"\\u00e9\\ud83d\\ude00"}}  ', two))
local named, meta = flin.load(path)
expect(named.x[1] == 1 and meta.by == "é😀", "metadata, spaces at the end")

local function entry(dtype, shape, from, to)
  return ('{"dtype":%s,"shape":%s,"data_offsets":[%s,%s]}')
         :format(dtype, shape, from, to)
end
local fine = safe('{"x":' .. entry('"F32"', "[2]", 0, 8) .. "}", two)
for cut = 0, #fine - 1 do
  write(fine:sub(1, cut))
  expect(not pcall(flin.load, path), "safetensors cut to " .. cut)
end
local function one(...)
  return safe('{"x":' .. entry(...) .. "}", two)
end
refuses("has dtype 'I16'", one('"I16"', "[1]", 0, 8))
refuses("do not ascend", one('"F32"', "[2]", 8, 0))
refuses("'x' ends at byte 16, but there are 8", one('"F32"', "[4]", 0, 16))
refuses("bytes 0 to 4, before tensor 'x'", one('"F32"', "[2]", 4, 12))
refuses("too large", one('"F32"', "[2]", "0", "9223372036854775807"))
refuses("where its shape wants 12", one('"F32"', "[3]", 0, 8))
refuses("where its shape wants", one('"F32"', "[4294967296,4294967296]", 0, 8))
refuses("lacks a number", one('"F32"', "[-2]", 0, 8))
refuses("more than 8 numbers", one('"F32"', "[1,1,1,1,1,1,1,1,2]", 0, 8))
refuses("is there twice", safe('{"x":' .. entry('"F32"', "[1]", 0, 4) ..
        ',"x":' .. entry('"F32"', "[1]", 4, 8) .. "}", two))

-- Tensors lie one behind the other, in any order of names, and fill the file.
local function several(data, ...)
  local parts = {}
  for i, e in ipairs { ... } do
    parts[i] = ('"%s":%s'):format(("xyzw"):sub(i, i),
                                  entry('"F32"', "[" .. e[1] .. "]", e[2],
                                        e[3]))
  end
  return safe("{" .. table.concat(parts, ",") .. "}", data)
end
write(several(two, { 0, 8, 8 }, { 1, 4, 8 }, { 1, 0, 4 }, { 0, 4, 4 }))
local apart = flin.load(path)
expect(apart.y[1] == 2 and apart.z[1] == 1 and apart.x.count == 0
       and apart.w.count == 0, "any order, empty ones between")
write(safe(('{"a\\u0000b":%s,"a":%s}'):format(entry('"F32"', "[1]", 0, 4),
                                            entry('"F32"', "[1]", 4, 8)), two))
apart = flin.load(path)
expect(apart["a\0b"][1] == 1 and apart.a[1] == 2, "names with a zero byte")
for _, case in ipairs {
  { "'x' and 'y' overlap: one begins at byte 4, the other ends at 8",
    { 2, 0, 8 }, { 1, 4, 8 } },
  { "'x' and 'y' overlap", { 2, 0, 8 }, { 2, 0, 8 } },
  { "overlap", { 1, 4, 8 }, { 2, 0, 8 } },
  { "overlap", { 0, 4, 4 }, { 2, 0, 8 } },
  { "bytes 4 to 8, behind the last tensor, are no tensor's", { 1, 0, 4 } },
  { "bytes 0 to 4, before tensor 'x', are no tensor's", { 1, 4, 8 } },
  { "before tensor 'y'", { 0, 0, 0 }, { 1, 4, 8 } },
  { "behind the last tensor", { 0, 0, 0 } },
  { "before tensor 'y'", { 1, 0, 4 }, { 0, 8, 8 } },
  { "behind the last tensor" },
} do
  refuses(case[1], several(two, table.unpack(case, 2)))
end
refuses("__metadata__ is there twice",
        safe('{"__metadata__":{},"__metadata__":{}}'))
refuses("unknown or twice", safe('{"x":{"type":"F32"}}'))
refuses("lacks dtype", safe('{"x":{}}'))
refuses("text follows", safe("{} {}"))
refuses("neither .npy nor .safetensors", string.pack("<I8", 1 << 40) .. "{}")
refuses("neither .npy nor .safetensors", "hello")
refuses("a bad escape", safe('{"\\x":{}}'))
refuses("a bad \\u", safe('{"\\u00g0":{}}'))
refuses("ends within a string", safe('{"x'))
refuses("a control character", safe('{"x\1":{}}'))
refuses("lacks a", safe(("["):rep(10000)))

expect(not pcall(flin.save, path, { 3 }), "a number to save")
expect(not pcall(flin.save, path, { x = 3 }), "a number by name to save")
expect(not pcall(flin.save, "/", flin.zeros(1)), "saving to a folder")
os.remove(path)

-- What waits for another program, or is not where it seems to be, is no file.
local function refused(what, f, ...)
  local ok, got = pcall(f, ...)
  expect(not ok and got:find(what, 1, true), tostring(got))
end
local function run(command)
  return os.execute(command .. " 2>/dev/null")
end
if run("mkfifo " .. path) then
  refused("is a pipe or a device, not a file", flin.load, path)
  os.remove(path)
  run("mkfifo " .. path .. ".part")
  refused(path .. ": ", flin.save, path, flin.zeros(1))
  expect(run("test -p " .. path .. ".part"), "another's pipe is left alone")
  os.remove(path .. ".part")
end
refused("is a pipe or a device, not a file", flin.load, "/dev/zero")
refused("is a folder, not a file", flin.load, "/")
if run("ln -s " .. path .. ".other " .. path .. ".part") then
  refused(path .. ": ", flin.save, path, flin.zeros(1))
  expect(not io.open(path .. ".other"), "a link is not followed")
  os.remove(path .. ".part")
end
write("left behind by a process that was killed")
os.rename(path, path .. ".part")
flin.save(path, flin.ones(2))
expect(flin.load(path)[2] == 1 and not io.open(path .. ".part"),
       "what was left behind is overwritten")
os.remove(path)

count.finish()
