-- The demo on a short text: learning curves beside counts; a row for every
-- variant, its error small; gates that follow the text tell the variants apart;
-- the delta rule predicts better than the plain sum; and what it says of no
-- text.
local flin = require "flin"

local count = require "support.count"
local expect <const> = count.expect

local svg = os.tmpname()

local function demo(path)
  local pipe = io.popen(("'%s' examples/recall.lua --steps 3 --svg '%s' '%s' "
                         .. "2>&1"):format(arg[-1], svg, path))
  local text = pipe:read "a"
  return text, pipe:close()
end

local text, ok = demo "compiler/base.h"
expect(ok, "the demo fails: %s", text)
local top, tried, total = {}, 0, 0
for _, name in ipairs(flin.stdlib_names) do
  local row = text:match("\n(" .. name .. " [^\n]+ ms)\n")
  expect(row, "no row for %s", name)
  local score, bits, off, back =
    (row or ""):match "^%S+ +(%S+) +(%S+) +(%S+) +(%S+)"
  expect(tonumber(off) and tonumber(off) <= 1e-5, "%s: error %s", name, off)
  expect(tonumber(back) and tonumber(back) > 0 and tonumber(back) <= 1e-4,
         "%s: gradients %s", name, back)
  top[name] = tonumber(score)
  tried = tried + (top[name] and 1 or 0)
  total = total + 1
  expect(not top[name] or tonumber(bits) < 8, "%s: %s bits", name, bits)
end
expect(tried >= 12 and tried < total, "%d variants on the text", tried)
expect(top.deltanet and top.deltanet > top.linear,
       "the delta rule %s, the sum %s", top.deltanet, top.linear)
expect(select(2, text:gsub("@@", "")) > 18, "no masks are drawn")

local figures, alike = {}, {}
for name in pairs(top) do
  local figure = text:match("\n" .. name .. " +([%d.]+ +[%d.]+) ")
  alike[#alike + 1] = figure and figures[figure] and name .. " as "
                      .. figures[figure] or nil
  figures[figure or name] = name
end
expect(#alike <= 3, "print the same: %s", table.concat(alike, ", "))
for _, name in ipairs { "linear", "deltanet", "mamba2", "gla",
                        "gated_deltanet" } do
  local bits = tonumber(text:match("  " .. name .. " +([%d.]+)\n"))
  expect(bits and bits > 1 and bits < 9, "%s learns: %s", name, bits)
end
local last = 9
for order = 0, 3, 3 do
  local bits = tonumber(text:match("counts, order " .. order .. " +([%d.]+)\n"))
  expect(bits and bits < last, "counts of order %d: %s bits", order, bits)
  last = bits or last
  expect(text:find("\ncounts, order " .. order .. " +[%d.]+ +[%d.]+\n"),
         "no row of counts of order %d", order)
end
local drawn <const> = assert(io.open(svg)):read "a"
local _, lines = drawn:gsub('class="line s%d"', "")
expect(drawn:find "^<svg " and lines == 5, "%d curves are drawn", lines)
os.remove(svg)

local message, fine = demo "no such file"
expect(not fine and message == "recall: no such file: cannot be read\n",
       "no text: %s", message)
message, fine = demo "stdlib/linear.lua"
expect(not fine and message:find "too short", "little text: %s", message)

count.finish()
