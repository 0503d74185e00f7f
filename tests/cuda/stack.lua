-- What a layer's calls keep for the way back by the cut that they choose: with
-- plan = "pieces" by all the memory that a call takes, of ways that take a
-- twentieth more time at most, or the fastest in the memory that a call says,
-- with "stack" by what it keeps, of such as take a fifth more. On a driver of
-- tests that runs nothing, by tests/cuda/launched.c: FLIN_PIECES says a cut in
-- a process of its own.
--   launched tests/cuda/stack.lua [NAME TOKENS PLAN]      says the bytes
package.path = "tests/cuda/?.lua;" .. package.path
local flin = require "flin"
local suite = require "suite"
local expect <const> = suite.expect

local name, tokens, plan = ...

local MORE <const> = { mamba2 = { W = 4 }, gated_deltanet = { W = 4 } }

-- Nobody reads their numbers.
local function inputs_of(name, T)
  local layer <const> = flin.layers[name]
  local at = { B = 1, T = 1, D = 128, H = 2, K = 64, V = 64,
               dtype = "bfloat16" }
  for axis, n in pairs(MORE[name]) do at[axis] = n end
  local x = layer:random(at)
  for _, input in ipairs(layer.inputs) do
    local like <const> = x[input.name]
    local shape = like.shape
    if input.axes:find "^t" then shape[2] = T end
    x[input.name] = flin.zeros(table.unpack(shape)):to(like.dtype):to "cuda"
  end
  return x
end

local function kept(name, T, how, memory)
  local x = inputs_of(name, T)
  x.save, x.plan, x.memory = true, how, memory
  local _, _, saved = flin.layers[name]:forward(x)
  return saved.bytes
end

if name then
  print(kept(name, tonumber(tokens), plan))
  os.exit(0)
end

local function kept_by(cut, of, T)
  local pipe = assert(io.popen(("FLIN_PIECES=%s /proc/$PPID/exe "
    .. "tests/cuda/stack.lua %s %d stack"):format(cut, of, T)))
  local bytes = tonumber(pipe:read "a")
  pipe:close()
  return bytes
end

local LONG <const> = 8192

for of in pairs(MORE) do
  local all <const> = kept(of, LONG)
  local pieces <const> = kept(of, LONG, "pieces")
  local stack <const> = kept(of, LONG, "stack")
  local whole <const> = kept_by("1", of, LONG)
  expect(whole == all, "%s: uncut, %d bytes are kept, without a plan %d",
         of, whole, all)
  expect(stack < 0.9 * all, "%s: of %d bytes stack keeps %d", of, all,
         stack)
  expect(stack <= 1.05 * pieces, "%s: stack keeps %d bytes, pieces %d",
         of, stack, pieces)
  expect(kept(of, LONG, "stack") == stack, "%s: stack keeps others then",
         of)
end

-- In so much memory as there is: the least time, uncut; where it is too little,
-- the least memory, what is kept for the way back to work in included.
for of in pairs(MORE) do
  local all <const> = kept(of, LONG)
  local much <const> = kept(of, LONG, "pieces", 2^40)
  local little <const> = kept(of, LONG, "pieces", 1)
  expect(much >= all and little < much,
         "%s: of %d bytes %d are kept in much memory, %d in little", of, all,
         much, little)
end

-- What rows make again takes next to no time, and room to work in: that counts
-- where a layer is by itself.
local made_again <const> = kept_by("1rows", "mamba2", LONG)
expect(kept("mamba2", LONG, "stack") <= made_again
       and made_again < kept("mamba2", LONG, "pieces"),
       "mamba2: rows make again what %d bytes would be", made_again)

suite.finish()
