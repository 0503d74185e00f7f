-- v:source and v:compile: text, and a cubin where NVRTC is.
local flin = require "flin"
local gla = flin.stdlib.simple_gla

local text = gla:source("cuda", { K = 64, V = 128 })
assert(text:find("__global__") and text:find("in_k0_forward"))
assert(gla:source("cuda", { K = 64, V = 128 }) == text, "the same text")
assert(gla:source("cuda", { dtype = "float16" }):find("ELEMENT_F16"))
assert(not pcall(gla.source, gla, "cuda", { dtype = "float64" }))
assert(not pcall(gla.source, gla, "cuda", { chunk = 32 }))
assert(not pcall(gla.compile, gla, { arch = "sm_70" }))

local ok, r = pcall(gla.compile, gla, { arch = "sm_90a" })
if ok then
  assert(r.registers > 0 and r.spills == 0 and r.arch == "sm_90a")
  assert(r.shared <= 232448 and r.cubin:sub(2, 4) == "ELF")
else
  assert(r:find("NVRTC", 1, true), r)
  print("skip: " .. r)
end
