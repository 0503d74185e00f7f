-- v:source and v:compile: text, and a cubin where NVRTC is.
local flin = require "flin"
local gla = flin.stdlib.simple_gla

local text = gla:source("cuda", { K = 64, V = 128 })
assert(text:find("__global__") and text:find("in_k0_forward"))
assert(gla:source("cuda", { K = 64, V = 128 }) == text, "the same text")
assert(gla:source("cuda", { dtype = "float16" }):find("ELEMENT_F16"))
assert(not pcall(gla.source, gla, "cuda", { dtype = "float64" }))
-- single tokens
local other = gla:source("cuda", { serial = true })
assert(other:find("__global__") and not other:find("in_k0_forward"))
-- chunks as there are schedules of
for asked, taken in pairs { [16] = 32, [48] = 32, [100] = 64 } do
  assert(gla:source("cuda", { chunk = asked, backward = true })
         == gla:source("cuda", { chunk = taken, backward = true }))
  local plan = tostring(gla:plan { chunk = asked, machine = "h200" })
  assert(plan:find("chunk " .. taken .. "\n"), plan)
end
-- what a call launches there
for arch, uses in pairs { sm_80 = "copies.cuh", sm_90a = "wgmma.cuh",
                          sm_100a = "tcgen05.cuh", sm_120a = "mma.cuh" } do
  for _, backward in ipairs { false, true } do
    local text = gla:source("cuda", { arch = arch, backward = backward })
    assert(text:find("in_k%d_" .. (backward and "reverse" or "forward"))
           and text:find(uses, 1, true) and not text:find "tile.cuh", arch)
    assert(select(2, text:gsub("__launch_bounds__", ""))
           >= (backward and 2 or 1), arch)
  end
end
assert(gla:source("cuda", { backward = true, K = 32, V = 32 }):find "reverse")
-- accumulators of wgmma that are under way are not those of a part of them:
-- ptxas waits for each else
local function taken_apart(text)
  local under_way, wrong = {}, nil
  for line in text:gmatch "[^\n]+" do
    local n, to, at = line:match("multiply_tiles<.->%(registers<(%d+)>"
                                 .. "%((f%d+), (%d+)%)")
    if line:find("wgmma_wait<0>", 1, true) then
      under_way = {}
    elseif n then
      under_way[to] = under_way[to] or {}
      for i = at // 1, at + n - 1 do
        local piece = at .. ":" .. n
        wrong = wrong or (under_way[to][i] or piece) ~= piece and line
        under_way[to][i] = piece
      end
    end
  end
  return wrong
end
for _, V in ipairs { 80, 128 } do
  local text = flin.stdlib.gsa:source("cuda", { arch = "sm_90a", K = 80, V = V,
                                                M = 80 })
  assert(text:find("registers<", 1, true) and not taken_apart(text),
         taken_apart(text))
end
assert(not pcall(gla.source, gla, "cuda", { arch = "80" }))
assert(not pcall(gla.compile, gla, { arch = "sm_70" }))

local ok, r = pcall(gla.compile, gla, { arch = "sm_90a" })
if ok then
  assert(r.registers > 0 and r.spills == 0 and r.arch == "sm_90a")
  assert(r.shared <= 232448 and r.cubin:sub(2, 4) == "ELF")
  -- one whose kernel for Hopper ptxas may have no registers for
  local before = flin.variant {
    name = "before",
    input = { q = "t k", k = "t k", v = "t v", beta = "t : unit",
              g = "t k : log_decay" },
    state = { S = "k v" },
    step = function (x, s)
      return { S = flin.exp(x.g) * s.S + flin.outer(x.k * x.beta, x.v) },
        flin.dot(x.q, s.S)
    end,
  }
  assert(before:compile().spills == 0)
else
  assert(r:find("NVRTC", 1, true), r)
  print("skip: " .. r)
end
