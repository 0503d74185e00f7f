-- v:map: functions that inputs go through before the step.
local flin = require "flin"

local count = require "support.count"
local check <const> = count.check

local function apart(a, b)
  return (a - b):maxabs() / b:maxabs()
end

local function refused(name, text, f, ...)
  local ok, e = pcall(f, ...)
  check(name, not ok and tostring(e):find(text, 1, true), e)
end

local v = flin.stdlib.gated_deltanet
local r = function (i, ...) return flin.randn(..., { seed = i }) end
local x = { q = r(1, { 2, 70, 2, 16 }), k = r(2, { 2, 70, 2, 16 }) * 0.2,
            v = r(3, { 2, 70, 2, 8 }), g = -r(4, { 2, 70, 2 }):map(math.abs),
            beta = r(5, { 2, 70, 2 }):map(math.abs) * 0.1 }
local dy = r(6, { 2, 70, 2, 8 })

-- A scale: the same as scaling the tensor; its gradient too.
local w = v:map { q = function (q)
  return q * flin.rsqrt(flin.size(q, "k"))
end }
local scaled = {}
for name, t in pairs(x) do scaled[name] = t end
scaled.q = x.q * 0.25
check("scale", apart(w:forward(x), v:forward(scaled)) < 1e-6)
x.dy, scaled.dy = dy, dy
check("its gradient", apart(w:backward(x).q,
                            v:backward(scaled).q * 0.25) < 1e-5)
check("others' gradients", apart(w:backward(x).k,
                                 v:backward(scaled).k) < 1e-5)

-- Several, and maps of maps; the first variant is as it was.
local n = w:map { q = flin.l2norm, k = flin.l2norm }
local report = n:check { B = 1, T = 66, H = 2, K = 16, V = 16 }
check("maps of maps", report.worst < 1e-5, report)
check("untouched", v:graph() ~= w:graph() and not v:graph():find("rsqrt"))
check("fixed axes stay", flin.stdlib.deltaproduct:map {
  q = function (q) return q * 2 end
}:check { T = 20, H = 1, K = 16, V = 16 }.worst < 1e-5)

refused("no such input", "map: gated_deltanet has no input 'z'", v.map, v,
        { z = function (z) return z end })
refused("other axes", "map: 'q' has axes k, but the function makes axes none",
        v.map, v, { q = function (q) return flin.sum(q, "k") end })
refused("no function", "map: q: a function is wanted, not a number",
        v.map, v, { q = 2 })
refused("no table", "map: a table is wanted, not nothing", v.map, v)

count.finish()
