-- The program: options, exit codes, the prompt, what it says and where.
local flin = arg[-1]
local dir = os.tmpname()
os.remove(dir)
assert(os.execute("mkdir " .. dir))
local passed, failed = 0, 0
local before = ""                       -- settings in front of the command

local function write(name, text)
  local f <close> = assert(io.open(dir .. "/" .. name, "w"))
  f:write(text)
end

-- Runs flin in the folder; wants this exit code and this output (of both
-- streams), or a part of it where it starts with "...".
local function run(args, code, want, input)
  write("input", input or "")
  local p = assert(io.popen(("cd %s && %s '%s' %s <input 2>&1; "
                             .. "echo =$?"):format(dir, before, flin, args)))
  local out, got = p:read("a"):match("^(.*)=(%d+)\n$")
  p:close()
  local ok = tonumber(got) == code
  if want:sub(1, 3) == "..." then
    ok = ok and out:find(want:sub(4), 1, true)
  else
    ok = ok and out == want
  end
  if ok then
    passed = passed + 1
  else
    failed = failed + 1
    print(("FAIL flin %s: exit %s (wanted %d)\n%s"):format(args, got, code,
                                                           out))
  end
end

write("args.lua", "#!/usr/bin/env flin\nprint(arg[0], #arg, ...)\n")
write("noflin.lua", "print(flin)")
write("plain.lua", [[
local flin = require "flin"
return flin.variant { name = "plain", input = { q = "t k" },
  state = { S = "k" }, step = function (x, s)
    local S = s.S + x.q
    return { S = S }, S
  end }]])
write("fails.lua", "\nerror 'no'\n")
write("module.lua", "return { name = ..., x = 3 }")
write("uses.lua", "print(require 'module'.x, require 'module'.name,\n" ..
                  "      require 'module' == require 'module')")
write("variant.lua", [[
return require "flin".variant {
  name = "sum", input = { k = "t k", v = "t v", q = "t k" },
  state = { S = "k v" },
  step = function (x, s)
    local flin = require "flin"
    local S = s.S + flin.outer(x.k, x.v)
    return { S = S }, flin.dot(x.q, S)
  end,
}]])

if flin:sub(1, 1) ~= "/" then
  local p <close> = io.popen "pwd"
  flin = p:read "l" .. "/" .. flin
end

run("-e 'print(1)' -e 'print(2)'", 0, "1\n2\n")
run("-e'print(1)' args.lua a 'b c'", 0, "1\nargs.lua\t2\ta\tb c\n")
run("-e 'print(flin.zeros(2).count)'", 0, "2\n")
run("-e 'x = 1' noflin.lua", 0, "nil\n")
run("check --help", 0, "...usage: flin check SCRIPT.lua")
run("bench -h", 0, "...seconds=0.3 of each row")
run("plan --help", 0, "...format=svg")
run("new --help", 0, "...Writes NAME.lua")
run("plan machine=h200", 1, "...flin plan: a script is wanted before machine=")
run("plan plain.lua format=svg", 0, "...</svg>")
run("-i plain.lua", 0, "...plain\n", "plain.name\n")
run("-i plain.lua", 0, "...plain.lua: plain\n", ":reload\n")
run("-i -e 'x = 1'", 1, "...help: :load my_variant.lua\n", ":reload\n")
run("-e 'print(dofile \"module.lua\".x)'", 0, "3\n")
run("--sandbox -e 'print(dofile)'", 0, "nil\n")
run("--luacats", 0, "...---@meta flin\n")
run("--luacats", 0, "...---@param definition flin.Definition\n")
run("--luacats", 0, "...---@field inputs flin.Input[] ")
run("--luacats >flin.lua; lua5.4 -e 'require \"flin\"' 2>&1; rm flin.lua", 0,
    os.execute "command -v lua5.4 >/dev/null"
    and "...definitions for editors: name it flin.d.lua" or "...")
run("- x y", 0, "-\t2\tx\ty\n", "print(arg[0], #arg, ...)")
run("-- args.lua -e", 0, "args.lua\t1\t-e\n")
run("-l module -e 'print(module.x)'", 0, "3\n")
run("uses.lua", 0, "3\tmodule\ttrue\n")
run("-v", 0, "...flin 0.1.0, Lua 5.4")
run("-h", 0, "...usage: flin")
run("--nonsense", 2, "...flin: unknown option '--nonsense'")
run("-d", 2, "...a value is wanted after '-d'")
run("--threads many", 2, "...a number is wanted, not 'many'")
run("fails.lua", 1, "fails.lua:2: no\n")
run("nothing.lua", 1, "nothing.lua: No such file or directory\n")
run("chekc plain.lua", 1, "...help: a script, or check, bench, plan, new")
run("/", 1, "/: Is a directory\n")
run("-e 'x ='", 1, "(command line):1: unexpected symbol near <eof>\n")
run("-e 'os.exit(7)'", 7, "")
run("--sandbox -e 'print(io, os, load)'", 0, "nil\tnil\tnil\n")
run("--sandbox uses.lua", 1, "...a script in the sandbox can require \"flin\"")

-- A script named by another waits for no one; one named here may be a pipe.
if os.execute("mkfifo " .. dir .. "/pipe.lua") then
  write("waits.lua", "print(pcall(require, 'pipe'))")
  before = "timeout 20"
  run("waits.lua", 0, "...pipe.lua: is a pipe or a device, not a file")
  run("-i", 1, "...pipe.lua: is a pipe or a device, not a file",
      "dofile 'pipe.lua'\n")
  before = "(timeout 20 sh -c \"echo 'print(7 * 6)' >pipe.lua\" &) ; timeout 20"
  run("pipe.lua", 0, "42\n")
  before = ""
end

run("variant.lua", 0, "...sum: q [t k], k [t k], v [t v] -> y [t v]")
run("-d T variant.lua", 0, "...step sum")
run("-d Z variant.lua", 1, "...dump: no pass has the letter 'Z'")
run("-d T args.lua", 1, "...the script returns no variant")
run("--check variant.lua", 0, "...within 1e-05")
run("--check=T=9,K=5,dtype=\"'bf16'\" variant.lua", 0, "...within 4e-03")
run("--check=T=9,K=5,dtype=bf16 variant.lua", 0, "...within 4e-03")
run("--check=T= variant.lua", 1, "...unexpected symbol near '}'")
run("--check=X=9 variant.lua", 1, "...check: there is no option 'X'")
run("--backend tpu --check variant.lua", 1, "...there is no backend 'tpu'")

run("", 0, "2\n1\t2\n", "1+1\nfor i = 1, 1 do\nprint(i, i+1)\nend\n")
run("", 1, "stdin[1]:1: no\n3\n", "error 'no'\n3\n")
run("", 0, "3\n", "3\n")
run("", 0, "4\n", "#'abc' +\n1\n")     -- no "#!" line
run("-i", 1, "...\nmask: T = abc: a whole number",
    "v = flin.stdlib.linear\n:mask v T=abc\n")
run("", 1, "...near <eof>", "for i = 1, 2 do\n")
run("-i -e 'x = 5'", 0, "...\n5\n", "x\n")

-- flin check, bench, plan, new; what runs first; definitions for editors.
run("new mine", 0, "mine.lua: a gated delta rule to start from\n"
    .. "  flin check mine.lua\n")
run("new mine", 1, "...mine.lua is there already")
run("new 2nd", 1, "...'2nd' is not usable as a name")
run("check mine.lua", 0, "...1 of 1 variants: ok")
run("check mine.lua K=8 T=40", 0, "...\n  cpu  ")
run("mine.lua", 0, "...runs in chunks")
write("both.lua", "local s = require 'flin'.stdlib\n"
      .. "return { s.gla, s.linear }")
run("check both.lua T=20 K=4 V=4", 0, "...2 of 2 variants: ok")
run("plan both.lua K=8 V=8", 0, "...linear on cpu: forward")
run("bench both.lua T=40 H=1 K=4 V=4 seconds=0.01", 0,
    "...linear: float32 [1, 40, 1, 4]; medians")
run("check args.lua", 1, "...flin check: the script returns no variant")
write("case.lua", "return { size = 3, variant = function (flin) end }")
run("check case.lua", 1, "flin check: the script returns no variant, but a "
    .. "table with size (a number), variant (a function)\n  help: variant is "
    .. "a function that makes one: return what it returns\n")
write("library.lua", "local flin, options = ...\nlocal exp = flin.exp\n")
run("check library.lua", 0, "library.lua is a library: what loads it gives it "
    .. "flin. It has no variant to check; one that uses it has (flin check "
    .. "stdlib/gla.lua)\n")
run("library.lua", 1, "...is a library: it is given flin by what loads it")
write("functions.lua", "return { depth = 3, new = function () end }")
run("plan functions.lua", 0, "a library, which has no variant to plan: it "
    .. "returns a table with depth (a number), new (a function)\n")
run("new one two", 1, "flin new: one name is wanted, not 'two' as well\n")
run("check mine.lua backend=gpu", 1, "...no backend 'gpu'\n  help: backends: "
    .. "interpreter, cpu, cuda\n")
-- one that is not here was asked for: not skipped
before = "env CUDA_VISIBLE_DEVICES= "
run("check mine.lua T=9 backend=cuda", 1, "...cuda         FAILED: ")
before = ""
run("--arch sm_80 --arch sm_90a mine.lua", 2,
    "...flin: one --arch is taken, not 'sm_90a'\n")
run("check mine.lua Z=3", 1, "...help: sizes of axes (K = 64), or: B T H HV "
    .. "dtype chunk cu_seqlens seed backend threads backward size plan\n"
    .. "  cpu          FAILED: the same\n")
for _, wrong in ipairs { "K=abc", "H=abc", "B=abc", "chunk=abc", "seed=abc" } do
  run("check mine.lua " .. wrong, 1,
      "...  differences  FAILED: ")
end
run("check mine.lua T=-5", 1, "...T = -5: a whole number, 0 or more, is wanted")
run("bench mine.lua T=0", 1, "bench: T = 0: there is no token to measure\n")
run("bench mine.lua seconds=-1", 1,
    "bench: seconds = -1: a number, 0 or more, is wanted\n")
run("check", 1, "...flin check: a script is wanted")
run("check mine.lua 7", 1, "...'7' is no option")
write("steps.lua", [[
local flin = require "flin"
return flin.variant {     -- a gradient of 0 that all differences contradict
  name = "stairs", input = { q = "t k", k = "t k", v = "t v" },
  state = { S = "k v" },
  step = function (x, s)
    local S = s.S + flin.outer(flin.floor(x.k * 1e9) * 1e-5, x.v)
    return { S = S }, flin.dot(x.q, S)
  end,
}]])
run("check steps.lua T=20 K=4 V=4", 1, "...0 of 1 variants: ok")
write("serial.lua", [[
local flin = require "flin"
local v = flin.variant {
  name = "serial", input = { v = "t v" }, state = { m = "v" },
  step = function (x, s)
    local m = flin.tanh(s.m) + x.v
    return { m = m }, m
  end,
}
for i = 1, 3 do
  v:forward(v:random { T = 9 })
  v:backward(v:random { T = 9 }, { dy = v:random { T = 9 }.v })
end
print(v.note)
]])
local why = "serial.lua:5: tanh(m) is not linear in m\n"
            .. "  5 |     local m = flin.tanh(s.m) + x.v\n"
run("serial.lua", 0, "flin: serial goes token by token (said once): " .. why
    .. why)
write("pairs.lua", [[
local flin = require "flin"
local v = flin.variant { name = "pairs", mode = "quadratic",
  mask = function (i, j)
    if i < j then return 0 end
    return 1 / (i - j + 1)
  end }
local x = v:random { T = 5, K = 4, V = 4 }
v:forward(x)
x.backend = "cuda"
v:forward(x)
v:forward(x)
]])
run("pairs.lua", 0, "flin: pairs runs on the CPU, where its tensors are: over "
    .. "all pairs of tokens none are moved (said once)\n")
run("--luacats", 0, "...function flin.dot(a, b, axes) end")
run("-l g=module -e 'print(g.x, module)'", 0, "3\tnil\n")
run("-W -e 'warn \"careful\"'", 0, "Lua warning: careful\n")
run("--color=never -e 'print(1)'", 0, "1\n")
run("--color=mauve", 2, "...always, never or auto is wanted, not 'mauve'")
before = "FLIN_INIT='print(flin.zeros(3).count)'"
run("noflin.lua", 0, "3\nnil\n")
before = "FLIN_INIT='print(7)'"
run("-e 'print(8)'", 0, "7\n8\n")
run("-E -e 'print(8)'", 0, "8\n")
before = ""

-- The prompt without a terminal.
run("", 0, "42\n", "=6*7\n")
run("", 0, "1\n2\n", "1\n_ + 1\n")
run("", 0, "{ 1, 2, x = \"y\" }\n", "{ 1, 2, x = 'y' }\n")
run("", 0, "...the product summed over axes", "?dot\n")
run("", 0, "...runs in chunks", ":help gla\n")
run("", 1, "...there is no command :nope", ":nope\n")
run("", 1, "...did you mean ':check'? there are: :mask", ":chekc\n")
run("", 0, "nothing is called 'outr': did you mean 'outer'? flin.help() lists "
    .. "all there is\n", "?outr\n")
run("", 1, "...dag: which variant?", ":dag\n")
run("", 0, "...gla: one token", ":dag gla\n")
run("", 0, "...saved p.svg", ":save p.svg gla K=8 V=8\n")
run("-e 'io.write(io.open(\"p.svg\"):read(4))'", 0, "<svg")
run("", 0, "...saved z.npy", "flin.ones(2)\n:save z.npy\n")
run("-e 'print(require\"flin\".load(\"z.npy\").count)'", 0, "2\n")
run("--sandbox", 1, "...save: the sandbox writes no files",
    ":save p.svg gla K=8 V=8\n")

-- Ctrl-C stops a script that has begun, and one that catches every error.
local function interrupt(text)
  local p = io.popen(("echo $$; exec '%s' -e 'print \"begun\" "
                      .. "io.stdout:flush() %s' 2>&1"):format(flin, text))
  local pid = p:read "l"
  assert(p:read "l" == "begun")
  os.execute("kill -INT " .. pid)
  local out = p:read "a"
  local _, _, code = p:close()
  if out:find("interrupted", 1, true) and code == 130 then
    passed = passed + 1
  else
    failed = failed + 1
    print("FAIL interrupt: " .. out)
  end
end
interrupt("while true do end")
interrupt("while true do pcall(function () while true do end end) end")

os.execute("rm -r " .. dir)
print(("%d passed, %d failed"):format(passed, failed))
os.exit(failed == 0 and 0 or 1)
