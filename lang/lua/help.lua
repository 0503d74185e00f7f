-- flin.help and flin.luacats: the table of built-ins as text.
local flin, own = ...
local rows = own.load "lang/lua/builtins" ()

local help = {}

function help.rows()
  return rows
end

-- "a: value, b?: string -> value": lists of { name, type, optional }.
local function parse(signature)
  local arrow = signature:find("->", 1, true)
  local left = signature:sub(1, (arrow or 0) - 1)
  local right = arrow and signature:sub(arrow + 2)
  local params, results = {}, {}
  for p in left:gmatch "[^,]+" do
    local name, mark, kind = p:match "([%w_]+)(%??): *([^ ]+)"
    params[#params + 1] = name and { name, kind, mark == "?" } or { "..." }
  end
  for r in (right or ""):gmatch "[^,%s]+" do
    results[#results + 1] = r
  end
  return params, results
end

local function is_field(row)
  return row.signature and not row.signature:find "[:>]"
end

-- "dot(a, b [, axes]) -> value"
local function call_text(row)
  if row.usage then
    return row.name .. (row.usage:find "^=" and "" or " ") .. row.usage
  end
  if is_field(row) then
    return row.name .. " : " .. row.signature
  end
  local params, results = parse(row.signature)
  local text, closing = "", ""
  for i, p in ipairs(params) do
    local comma = i > 1 and ", " or ""
    if p[3] then
      text, closing = text .. (i > 1 and " [" or "[") .. comma .. p[1],
                      closing .. "]"
    else
      text = text .. comma .. p[1]
    end
  end
  text = ("%s(%s%s)"):format(row.name, text, closing)
  return #results > 0 and text .. " -> " .. table.concat(results, ", ") or text
end

local function indented(text)
  return "  " .. text:gsub("\n", "\n  ")
end

local function entry(row)
  local text = call_text(row) .. "\n  " .. row.brief .. "\n"
  return row.more and text .. indented(row.more) .. "\n" or text
end

-- The rows that a name means: in full, or what stands behind "flin." or ":".
local function find(name)
  local found = {}
  for _, row in ipairs(rows) do
    local short = row.name:match "[^.:]+$"
    if row.name == name or row.name == "flin." .. name then
      return { row }
    elseif short == name then
      found[#found + 1] = row
    end
  end
  return found
end

local function holding(name)
  local lines = {}
  for _, row in ipairs(rows) do
    if row.name:find(name, 1, true) or row.brief:find(name, 1, true) then
      lines[#lines + 1] = ("  %-28s %s"):format(row.name, row.brief)
    end
  end
  return lines
end

-- "did you mean 'dot'?", where one of the names is like it.
local function like(name, names)
  return own.suggest(name, "", names):match "^did you mean '[^']+'%?"
end

-- ": did you mean 'dot'? ", or what stands in its place.
local function near(name)
  local names = {}
  for _, row in ipairs(rows) do
    names[#names + 1] = row.name
    names[#names + 1] = row.name:match "[^.:]+$"
  end
  local found = like(name, table.move(flin.stdlib_names, 1,
                                      #flin.stdlib_names, #names + 1, names))
  return found and ": " .. found .. " " or "; "
end

-- What others call otherwise, or have and flin has not: what to write.
local ELSEWHERE <const> = {
  gelu = "x * flin.sigmoid(1.702 * x)",
  swish = "flin.silu(x)",
  elu = "flin.where(flin.lt(x, 0), flin.exp(flin.min(x, 0)) - 1, x)",
  leaky_relu = "flin.max(x, 0.01 * x)",
  relu6 = "flin.min(flin.relu(x), 6)",
  clamp = "flin.min(flin.max(x, low), high)",
  clip = "flin.min(flin.max(x, low), high)",
  pow = "flin.exp(y * flin.log(x)), or x * x",
  log2 = "flin.log(x) * 1.442695", exp2 = "flin.exp(x * 0.693147)",
  log1p = "flin.log(1 + x)", expm1 = "flin.exp(x) - 1",
  reciprocal = "1 / x", neg = "-x", add = "a + b", sub = "a - b",
  mul = "a * b", div = "a / b",
  einsum = "flin.dot(a, b, \"k\") sums over the axes that it names",
  matmul = "flin.dot(a, b) sums over the axes that both have; of tensors: "
           .. "flin.host.matmul",
  bmm = "flin.dot(a, b) sums over the axes that both have",
  cumsum = "a state: s.c + x.g is the sum up to a token; in a mask "
           .. "p.g_cumsum[i]",
  scan = "the step is the scan: state = { S = ... } goes from token to token",
  associative_scan = "the step is the scan: state = { S = ... } goes from "
                     .. "token to token",
  conv1d = "in a layer flin.conv(x, w.taps); in a step w0 * x.k + w1 * "
           .. "flin.prev(x.k)",
  short_conv = "in a layer flin.conv(x, w.taps); in a step w0 * x.k + w1 * "
               .. "flin.prev(x.k)",
  shift = "flin.prev(x.k) is the token before",
  roll = "flin.prev(x.k) is the token before",
  rmsnorm = "flin.rms_norm(x)", layernorm = "flin.layer_norm(x)",
  normalize = "flin.l2norm(x)", norm = "flin.sqrt(flin.sum(flin.square(x)))",
  rope = "flin.rotate(x, angle), or features = flin.feature_map.rope()",
  tril = "a mask: if i < j then return 0 end; see flin.mask_report",
  causal_mask = "a mask: if i < j then return 0 end; see flin.mask_report",
  transpose = "axes have names: flin.dot and flin.outer find them; of tensors: "
              .. "t:transpose(2, 3)",
  permute = "axes have names: flin.dot and flin.outer find them; of tensors: "
            .. "t:transpose(2, 3)",
  concat = "no axis is made of two: give each part a state or an input",
  cat = "no axis is made of two: give each part a state or an input",
  empty = "flin.zeros(...)", eye = "flin.zeros(n, n), and 1 where t[{ i, i }]",
  linspace = "flin.arange(n) * step", array = "flin.tensor { ... }",
  from_numpy = "flin.load \"x.npy\"",
  scaled_dot_product_attention = "softmax attention keeps all tokens; linear "
    .. "forms of it: flin.stdlib, flin.attention",
  grad = "v:backward { ..., dy = dy } returns the gradients",
  compile = "v:compile {}, or v:prepare { ... } before a CUDA graph",
}
help.elsewhere = ELSEWHERE

-- A C function of Lua's that met a value: what to call instead.
local function of_values(message)
  local name = message:match "to '([%w_]+)' %([^)]*got flin%.value"
  if not name then
    return nil
  end
  local known = #find("flin." .. name) > 0 and "flin." .. name
                or ELSEWHERE[name]
  return known and ("write %s: Lua's own takes numbers, and a value is known "
                    .. "only when the variant runs"):format(known)
         or "a value is known only when the variant runs: what works on it are "
            .. "functions of flin"
end

-- How many words of `long` begin with a letter of `short`, whose letters stand
-- in it, the first one first: 2 for "gdn" in "gated_deltanet"; 0: they do not.
local function abbreviates(short, long)
  local at, words = 1, 0
  if #short < 2 or short:sub(1, 1) ~= long:sub(1, 1) then
    return 0
  end
  for c in short:gmatch "." do
    local word = long:find("_" .. c, at, true)
    at = word and word + 1 or long:find(c, at, true)
    if not at then
      return 0
    end
    words = words + ((at == 1 or word) and 1 or 0)
    at = at + 1
  end
  return words
end

-- The standard library's variant that a name means, as it would be written.
local function variant_named(name)
  local found, most = nil, 0
  for _, known in ipairs(flin.stdlib_names) do
    local words = known == name and math.huge or abbreviates(name, known)
    if words > most then
      found, most = known, words
    end
  end
  return found and "flin.stdlib." .. found
end

-- Help where Lua's own message names what is nil, or a value where there
-- should be a number; or nothing.
function help.meant(message)
  local kind, name = message:match "a nil value %((%a+) '([%w_]+)'%)"
  local names, known = {}, {}
  if message:find("got flin.value", 1, true) then
    return of_values(message)
  elseif not name then
    kind, name = "method", message:match "no field or method '([%w_]+)'"
  end
  if kind == "local" and (name == "flin" or name == "own") then
    return "a file that begins with `local flin = ...` is a library: it is "
           .. "given flin by what loads it. What can be checked is a variant "
           .. "that uses it (flin check stdlib/gla.lua), or a script with "
           .. "`local flin = require \"flin\"`"
  end
  for _, row in ipairs(rows) do
    local of, last = row.name:match "^(.-[.:])([^.:]+)$"
    if of and (of:find "^flin") == (kind ~= "method" and 1 or nil) then
      names[#names + 1], known[last] = last, row.name
    end
  end
  if kind == "global" then
    for global in pairs(_G) do
      names[#names + 1] = global
    end
    names[#names + 1] = "flin"
    if known[name] then
      return (own.prompt and "%s = %s" or "local %s = %s"):format(name,
                                                                  known[name])
    end
    local variant = variant_named(name)
    return like(name, names) or variant and ("%s = %s"):format(own.prompt
           and name or "local " .. name, variant)
           or own.prompt and ("%s = ... makes it; :help says more")
                             :format(name) or nil
  end
  if kind ~= "method" and kind ~= "field" or known[name] then
    return nil
  end
  return like(name, names) or kind == "field" and ELSEWHERE[name] or nil
end

local function overview()
  local lines = {}
  for _, row in ipairs(rows) do
    lines[#lines + 1] = ("%-30s %s"):format(row.name, row.brief)
  end
  return table.concat(lines, "\n") .. "\n"
end

function help.of(name)
  if name == nil then
    return overview()
  elseif type(name) ~= "string" then
    error("flin.help: a name is wanted, not a " .. type(name)
          .. "\n  help: flin.help \"dot\"", 2)
  end
  local texts = {}
  for i, row in ipairs(find(name)) do
    texts[i] = entry(row)
  end
  local variants = "," .. table.concat(flin.stdlib_names, ",") .. ","
  local variant = name:match "^flin%.stdlib%.(.+)" or name
  if #texts == 0 and variants:find("," .. variant .. ",", 1, true) then
    return ("flin.stdlib.%s\n%s"):format(variant,
                                         tostring(flin.stdlib[variant]))
  elseif #texts == 0 then
    local lines = holding(name)
    if #lines == 0 then
      return ("nothing is called '%s'%sflin.help() lists all there is\n")
             :format(name, near(name))
    end
    return ("nothing is called '%s'; it stands in\n%s\n")
           :format(name, table.concat(lines, "\n"))
  end
  return table.concat(texts, "\n")
end

-- ---- LuaCATS ----

local CLASS = { v = "flin.Variant", t = "flin.Tensor", g = "flin.Game",
                flin = "flin" }
local TYPE = { value = "flin.Value", tensor = "flin.Tensor",
               tensors = "table<string, flin.Tensor>",
               gradients = "flin.Gradients", variant = "flin.Variant",
               game = "flin.Game", definition = "flin.Definition",
               input = "flin.Input", state = "flin.State", plan = "flin.Plan",
               check = "flin.Check", gradcheck = "flin.Gradcheck",
               bench = "flin.Bench", io = "flin.Io",
               description = "flin.Description", compiled = "flin.Compiled",
               mask_report = "flin.MaskReport", stdlib = "flin.Stdlib",
               layers = "flin.Layers" }

local function type_text(kind)
  return (kind:gsub("[%a_]+", TYPE))
end

local function comment(out, row)
  out[#out + 1] = "---" .. row.brief
  for line in ((row.more or "") .. "\n"):gmatch "(.-)\n" do
    if row.more then
      out[#out + 1] = "---" .. line
    end
  end
end

-- ---@param and ---@return lines, and the function itself.
local function define(out, row, path)
  local params, results = parse(row.signature)
  local names = {}
  for i, p in ipairs(params) do
    names[i] = p[1]
    out[#out + 1] = p[2] and ("---@param %s%s %s"):format(p[1],
                    p[3] and "?" or "", type_text(p[2])) or "---@param ... any"
  end
  for _, r in ipairs(results) do
    out[#out + 1] = "---@return " .. type_text(r)
  end
  out[#out + 1] = ("function %s(%s) end\n"):format(path,
                                                  table.concat(names, ", "))
end

local HEAD = [[
---@meta flin
-- Definitions of flin for editors that read LuaCATS (lua-language-server); the
-- file's name is free, but for flin.lua, which require would take for flin.
if ... == "flin" then
  error "this flin.lua holds definitions for editors: name it flin.d.lua"
end

---@class flin.Input
---@field name string
---@field axes string as the script names them: "t k"
---@field domain string "normal", "log_decay", "unit", "unit_norm" ...
---@field unit string
---@field wanted string what is wanted of its values

---@class flin.State
---@field name string
---@field axes string
---@field angle boolean kept modulo 2 pi

---@alias flin.Values table<string, flin.Value>

---@class flin.Definition
---@field name string
---@field input? table<string, string> q = "t k : unit_norm"
---@field state? table<string, string> S = "k v"
---@field axes? table<string, integer> fixed sizes: r = 2
---@field mode? "quadratic"
---@field causal? boolean false: tokens behind i weigh, too
---@field transition? table of flin.transition, under the mask's decay
---@field normalise? "softmax"
---@field score? fun(s: flin.Value, i: flin.Value, j: flin.Value, p: table): any
---@field scale? number of scores
---@field tokens? integer kept by v:step, over all pairs of tokens
---@field initial? table<string, number|fun(at: table): number> of constants
---@field step? fun(x: flin.Values, s: flin.Values): flin.Values, flin.Value
---@field mask? fun(i: flin.Value, j: flin.Value, p: table): any

---@class flin.Traffic
---@field name string
---@field bytes number a token and head
---@field from? integer the kernel that made it; 0: an argument
---@field kept? boolean read by another kernel

---@class flin.Line
---@field name string
---@field text string
---@field axes string
---@field again boolean computed by an earlier kernel, too

---@class flin.Kernel
---@field name string
---@field kind "forward"|"reverse"|"token"
---@field bytes number moved, a token and head
---@field reads number
---@field flops number
---@field seconds number predicted, a token and head
---@field load number of them, what comes from memory takes
---@field ahead number what may run a chunk early
---@field serial number what waits for the state
---@field ahead_groups? number warpgroups that run ahead
---@field form? "wgmma"|"tcgen05"|"mma.sync"|"vectors" on a GPU
---@field why? string the limit that keeps it off wgmma
---@field roles? string warps of each: "load 1, matrix 8"
---@field warps? integer of a block
---@field shared? integer bytes that a block has
---@field blocks? integer that share a head
---@field buffers? integer that these are dealt to
---@field registers? integer a thread's, of the matrix role
---@field tensor? integer columns of tensor memory that a block has
---@field instructions? integer of the machine, estimated
---@field part_of? integer which kernel it was a part of, before that was cut
---@field nodes string[]
---@field recomputed string[]
---@field lines flin.Line[] what it computes, as assignments
---@field arguments flin.Traffic[]
---@field results flin.Traffic[]

---@class flin.Weighed
---@field chunk number
---@field kernels number
---@field seconds number predicted, a token and head
---@field held number bytes on chip that its largest pass would take

---@class flin.Plan
---@field kernels flin.Kernel[]
---@field stored string[] kept between kernels
---@field split integer the kernels before the loss
---@field chunk integer tokens at once
---@field machine string
---@field solver string
---@field seconds number that choosing took
---@field bytes number
---@field unfused_bytes number
---@field peak_bytes number
---@field predicted number seconds a token and head
---@field chosen number of them, those that it was chosen by, before it was cut
---@field optimal boolean
---@field gap? number by which it may be dearer than the best, of it
---@field weighed flin.Weighed[] chunks that were compared
---@field text string
---@field note? string

---@class flin.Check
---@field y number
---@field state number
---@field step number
---@field worst number
---@field trouble? string
---@field [string] number d_NAME of each input; d_initial_state

---@class flin.GradcheckRow
---@field name string
---@field backward number
---@field reference number

---@class flin.Gradcheck
---@field name string
---@field rows flin.GradcheckRow[]
---@field directions integer
---@field worst number
---@field [string] number d_NAME of each input and initial state

---@class flin.BenchRow
---@field name string
---@field seconds number
---@field spread number half the range of the middle half
---@field first number seconds of the first run
---@field tokens integer
---@field runs integer
---@field bytes number arguments and results
---@field floor number seconds that a copy of these takes
---@field flops? number

---@class flin.BenchPart
---@field name string
---@field seconds number
---@field predicted number 0: it was not

---@class flin.BenchKernel
---@field call string the row whose call ran it
---@field kernel integer which of its plan's
---@field name string
---@field seconds number
---@field flops number
---@field moved number bytes
---@field counted boolean moved was counted, and is not the plan's word
---@field predicted number seconds; 0: it was not
---@field parts flin.BenchPart[] what was launched for it

---@class flin.Bench
---@field name string
---@field shape string
---@field rows flin.BenchRow[]
---@field kernels flin.BenchKernel[]
---@field bytes number arguments and results
---@field floor number seconds that a copy of these takes
---@field copy number bytes a second
---@field peak? number flops a second of products
---@field speedup? number of chunks over a loop
---@field threads? integer
---@field gpu? string
---@field note? string

---@class flin.Walk
---@field compulsory number words: inputs, results, state
---@field inputs number
---@field results number
---@field state number
---@field walk string
---@field best? number
---@field blocks? number
---@field axis? string
---@field chunk? number

---@class flin.KernelWords
---@field name string
---@field loads number
---@field stores number
---@field predicted number bytes

---@class flin.PlanWords
---@field words number
---@field once number
---@field peak number
---@field chunk integer
---@field kernels flin.KernelWords[]

---@class flin.Quadratic
---@field lower number
---@field sparse number
---@field d number
---@field blocks? number
---@field tiles? number

---@class flin.Io
---@field words number of the cache
---@field forward? flin.Walk
---@field training? flin.Walk
---@field quadratic flin.Quadratic
---@field plan? flin.PlanWords
---@field plan_note? string
---@field text string

---@class flin.Shaped
---@field name string
---@field axes string
---@field shape string "[B, T, H, K]"
---@field domain? string
---@field unit? string
---@field wanted? string
---@field angle? boolean

---@class flin.Description
---@field name string
---@field about string
---@field form string
---@field axes table<string, integer|false>
---@field inputs flin.Shaped[]
---@field output flin.Shaped
---@field outputs flin.Shaped[]
---@field states flin.Shaped[]
---@field note? string

---@class flin.Compiled
---@field arch string
---@field cubin string
---@field cubins string[]
---@field kernels integer
---@field registers integer
---@field spills integer
---@field shared integer
---@field seconds number

---@class flin.MaskProduct
---@field row string
---@field column string
---@field decay string
---@field band string

---@class flin.MaskReport
---@field factors boolean
---@field text string
---@field [integer] flin.MaskProduct

---@class flin.Gradients
---@field initial_state table<string, flin.Tensor>
---@field [string] flin.Tensor

---@class flin.Value
---@operator add(any): flin.Value
---@operator sub(any): flin.Value
---@operator mul(any): flin.Value
---@operator div(any): flin.Value
---@operator pow(any): flin.Value
---@operator unm: flin.Value
]]

-- The operators and entries of tensors.
local TENSOR <const> = [[
---@operator add(any): flin.Tensor
---@operator sub(any): flin.Tensor
---@operator mul(any): flin.Tensor
---@operator div(any): flin.Tensor
---@operator unm: flin.Tensor
---@field [integer] any]]

-- A class whose fields are these variants.
local function shelf(out, name, variants)
  out[#out + 1] = "---@class flin." .. name
  for _, variant in ipairs(variants) do
    out[#out + 1] = ("---@field %s flin.Variant"):format(variant)
  end
  out[#out + 1] = ""
end

local function sorted(names)
  local list = {}
  for name in pairs(names) do
    list[#list + 1] = name
  end
  table.sort(list)
  return list
end

local function fields_of(prefix, out)
  for _, row in ipairs(rows) do
    local head, name = row.name:match "^(%a+)%.([%w_]+)$"
    if head == prefix and is_field(row) then
      out[#out + 1] = ("---@field %s %s %s"):format(name,
                      type_text(row.signature), row.brief)
    end
  end
end

function help.luacats()
  local out = { HEAD }
  shelf(out, "Stdlib", flin.stdlib_names)
  shelf(out, "Layers", sorted(flin.layers))
  for _, c in ipairs { { "t", "Tensor" }, { "v", "Variant" },
                       { "g", "Game" } } do
    out[#out + 1] = "---@class flin." .. c[2]
    fields_of(c[1], out)
    out[#out + 1] = c[1] == "t" and TENSOR or nil
    out[#out + 1] = ("local %s = {}\n"):format(c[2])
  end
  out[#out + 1] = "---@class flin"
  fields_of("flin", out)
  out[#out + 1] = "local flin = {}\n"
  local made = {}
  for _, row in ipairs(rows) do
    local head, dot, name = row.name:match "^([%w_.]+)([.:])([%w_]+)$"
    local inner = head and head:match "^flin%.([%w_.]+)$"
    local class = ({ v = "Variant", t = "Tensor", g = "Game" })[head] or head
    if inner and not made[inner] then
      made[inner] = true
      out[#out + 1] = head .. " = {}\n"
    end
    if class and row.signature and not is_field(row) then
      comment(out, row)
      define(out, row, class .. dot .. name)
    end
  end
  out[#out + 1] = "return flin"
  return table.concat(out, "\n") .. "\n"
end

return help
