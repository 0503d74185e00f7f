-- A constant matrix of float32 beside inputs of 16 bits, summed: products alone
-- find a rounded one.
local flin = require "flin"
local suite = require "suite"

suite.gpu { poison = true }
local v = flin.variant {
  name  = "summed_constant",
  input = { q = "t k", k = "t k", v = "t v", g = "t : log_decay", w = "k m" },
  state = { S = "k v" },
  step  = function (x, s)
    local S = flin.exp(x.g) * s.S + flin.outer(x.k, x.v)
    return { S = S }, flin.dot(x.q * flin.tanh(flin.sum(x.w, "m")), S)
  end,
}
local x = v:random { B = 1, T = 200, H = 1, K = 64, V = 64, M = 64,
                     dtype = "bfloat16" }
x.w = x.w:to "float32" * 0.05
local off = suite.relative(v:forward(suite.on_gpu(x)), v:reference(x))
suite.expect(off < 1e-2, "y is off by %.1e", off)
suite.finish()
