-- What the plans of the standard library cost, by machine and pass: the same
-- whichever solver found them, which each says how far from the best they may
-- be. Chunks of 64, or of 16 where those do not fit.
local flin = require "flin"

for _, name in ipairs(flin.stdlib_names) do
  for _, machine in ipairs { "cpu", "h200" } do
    for _, backward in ipairs { false, true } do
      local v, ok, p = flin.stdlib[name]
      for _, chunk in ipairs { 64, 16 } do
        ok, p = pcall(v.plan, v, { machine = machine, backward = backward,
                                   chunk = chunk })
        if ok then
          break
        end
      end
      assert(not ok or p.gap, "no gap is proved")
      print(name, machine, backward and "joint" or "forward",
            ok and ("%.17g"):format(p.chosen) or p:match "[^\n]*")
    end
  end
end
