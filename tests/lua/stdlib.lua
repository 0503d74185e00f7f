-- A variant of the standard library is one short file that says where it is
-- from, and has the name of its file.
local flin = require "flin"

local NAMES <const> = "linear retnet lightning mamba2 simple_gla gla hgrn2 "
  .. "rwkv6 mlstm deltanet gated_deltanet kda gdn2 comba deltaproduct rwkv7 "
  .. "mamba3 mamba3_mimo precond_gdn precond_kda precond_mamba3 "
  .. "deltanet_rope trapezoidal_gla mimo_deltanet momentum_deltanet abc gsa "
  .. "iplr dplr gated_oja lightnet rebased titans cyfa"

local count = require "support.count"
local expect <const> = count.expect

local present = {}
for name, variant in pairs(flin.stdlib) do
  present[name] = true
  expect(variant.name == name, "%s calls itself %s", name, variant.name)
  local lines, head = 0, ""
  for line in io.lines("stdlib/" .. name .. ".lua") do
    if line:find "^%s*%-%-" then
      head = head .. (lines == 0 and line or "")
    elseif line:find "%S" then
      lines = lines + 1
    end
    expect(#line <= 80, "%s: a line of %d columns", name, #line)
  end
  expect(lines <= 30, "%s has %d lines of code", name, lines)
  expect(head:find "arXiv:%d%d%d%d%.%d+" or head:find "doi:10%.%d+/%w",
         "%s cites no paper", name)
end
for name in NAMES:gmatch "%S+" do
  expect(present[name], "there is no %s", name)
end

count.finish()
