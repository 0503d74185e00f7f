-- The training example: gradients of the whole model, the token loop's curve
-- and the chunk form's, and a short training that gets somewhere.
local passed, failed = 0, 0

local function run(options, pattern)
  local pipe = io.popen(("'%s' examples/train.lua %s 2>&1")
                        :format(arg[-1], options))
  local text = pipe:read "a"
  local ok = pipe:close()
  if pattern then
    ok = not ok and text:find(pattern, 1, true)
  end
  if ok then
    passed = passed + 1
  else
    failed = failed + 1
    print("FAIL " .. options .. "\n" .. text:gsub(".*\r", ""))
  end
end

run "--check --variant gated_deltanet"
run "--check --variant simple_gla"
run "--compare --steps 12 --variant gated_deltanet"
run "--compare --steps 12 --variant simple_gla"
run "--steps 60"
run("--steps 0", "held out")            -- untrained: above order 0, and says so
run("/nowhere/at/all", "cannot read /nowhere/at/all")
run("--speed", "no option --speed")

print(("%d passed, %d failed"):format(passed, failed))
