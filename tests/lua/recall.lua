-- The demo on a short text: a row for every variant, its error small; the
-- delta rule predicts better than the plain sum; and what it says of no text.
local flin = require "flin"

local count = require "support.count"
local expect <const> = count.expect

local function demo(path)
  local pipe = io.popen(("'%s' examples/recall.lua '%s' 2>&1")
                        :format(arg[-1], path))
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

local message, fine = demo "no such file"
expect(not fine and message == "recall: no such file: cannot be read\n",
       "no text: %s", message)
message, fine = demo "stdlib/linear.lua"
expect(not fine and message:find "too short", "little text: %s", message)

count.finish()
