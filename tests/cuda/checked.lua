-- flin check of a variant that amplifies what it is rounded by (a norm of a
-- result that is nearly 0 at first): in 16 bits it is off by more than usual,
-- which is said, and is no failure; a wrong gradient would be.
--   flin tests/cuda/checked.lua
local flin = arg[-1]
local suite = require "suite"
local expect <const> = suite.expect

suite.gpu()

local path = os.tmpname()
do
  local f <close> = assert(io.open(path, "w"))
  f:write [[
local flin = require "flin"
return flin.variant {
  name = "normed",
  input = { k = "t k", v = "t v", g = "t k : log_decay", w = "v" },
  state = { S = "k v" },
  step = function (x, s)
    local y = flin.dot(x.k, s.S)
    local S = flin.exp(x.g) * s.S + flin.outer(1 - flin.exp(x.g), x.v)
    return { S = S }, y / flin.sqrt(flin.mean(y * y, "v") + 1e-5) * x.w
  end,
}]]
end
local p = assert(io.popen(("'%s' check %s B=1 T=150 H=2 K=64 V=64 "
                           .. "dtype=bfloat16 2>&1"):format(flin, path)))
local out = p:read "a"
local ok = p:close()
os.remove(path)
expect(ok and out:find "1 of 1 variants: ok", "%s", out)
expect(out:find "careful: d_k: float32 is off by", "%s", out)
expect(out:find "cuda +%d", "no GPU: %s", out)
suite.finish()
