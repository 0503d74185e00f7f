-- flin check, bench and plan as commands, over all of the standard library and
-- over steps whose axes hang together: angles, names, entries.
local flin = require "flin"
local program = arg[-1]
local passed, failed = 0, 0

local path = os.tmpname()

local function write(text)
  local f <close> = assert(io.open(path, "w"))
  f:write(text)
end

-- Runs it; wants exit code 0 and this pattern so often.
local function run(args, pattern, times)
  local p <close> = assert(io.popen(("'%s' %s 2>&1; echo =$?"):format(program,
                                    args:gsub("FILE", path))))
  local out, code = p:read("a"):match "^(.*)=(%d+)\n$"
  local _, n = out:gsub(pattern, "")
  if code == "0" and n == times then
    passed = passed + 1
  else
    failed = failed + 1
    print(("FAIL flin %s: exit %s, %d of %d %s\n%s"):format(args, code, n,
          times, pattern, out))
  end
end

local ALL <const> = #flin.stdlib_names
write [[
local flin, all = require "flin", {}
for _, name in ipairs(flin.stdlib_names) do
  all[name] = flin.stdlib[name]
end
return all
]]
run("check FILE T=12 H=1 B=1 K=4 V=4", "differences[^\n]* ok\n", ALL)
run("bench FILE T=12 H=1 B=1 K=4 V=4 seconds=0", "  decode, one token", ALL)
run("plan FILE K=4 V=4", " on cpu: forward", ALL)
run("plan FILE K=16 V=16 backward=true machine=h200", " on h200: ", ALL)

write [[
local flin = require "flin"
return { flin.layers.gla, flin.layers.gated_deltanet }
]]
run("check FILE T=12 B=1 size=4", "2 of 2 variants: ok", 1)
run("bench FILE T=12 B=1 size=4 seconds=0", "  decode, one token", 2)

write [[
local flin = require "flin"
return flin.layer {
  name = "rounded", input = { x = "t d" },
  forward = function (x)
    return x.x + flin.detach(flin.floor(x.x + 0.5) - x.x)
  end,
}
]]
run("check FILE T=12 B=1 size=4", "differences  skipped: [^\n]*flin.detach", 1)

-- Long axes are shortened for differences, as their use in the step allows;
-- angles as a final state may lie a turn apart.
write "return require 'flin'.stdlib.retnet"
for _, sizes in ipairs { "K=64", "K=64 P=8", "K=12 P=6", "k=4 p=1" } do
  run("check FILE T=20 B=1 H=1 V=4 " .. sizes, "1 of 1 variants: ok", 1)
end

write [[
local flin = require "flin"
local rotate, dot, outer = flin.rotate, flin.dot, flin.outer

-- k(x) is what S is written at, and read at for want of q.
local function variant(name, input, axes, k, q)
  input.v = "t v"
  return flin.variant {
    name = name, input = input, axes = axes, state = { S = "k v" },
    step = function (x, s)
      local S = s.S + outer(k(x), x.v)
      return { S = S }, dot((q or k)(x), S)
    end,
  }
end

local function turned(x) return rotate(x.k, x.theta) end

local function pairs_of_channels()
  return { k = "t k", theta = "t p : angle" }
end

return {
  variant("fixed_angle", pairs_of_channels(), { p = 16 }, turned),
  variant("fixed_key", pairs_of_channels(), { k = 6 }, turned),
  variant("an_entry", { k = "t k", w = "t n" }, nil, function (x)
    return x.k * flin.at(x.w, "n", 20)
  end),
  variant("an_angle", pairs_of_channels(), nil, function (x)
    return turned(x) * flin.at(x.theta, "p", 20)
  end),
  variant("renamed", { q = "t k", k = "t w" }, { w = 20 }, function (x)
    return flin.rename(x.k, "w", "k")
  end, function (x) return x.q end),
  variant("fixed_both", { q = "t k", k = "t k" }, { k = 5, v = 3 },
          function (x) return x.k end, function (x) return x.q end),
}
]]
run("check FILE T=12 H=1 B=1", "differences[^\n]* ok\n", 6)
run("bench FILE T=12 H=1 B=1 seconds=0", "  decode, one token", 6)
run("plan FILE", " on cpu: forward", 6)

os.remove(path)
print(("%d passed, %d failed"):format(passed, failed))
os.exit(failed == 0 and 0 or 1)
