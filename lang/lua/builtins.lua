-- The table of built-ins: what `?name` and `:help` say, what the prompt
-- completes, and what editors are told (`flin --luacats`).
--
-- A row: name, signature ("parameters -> results", or the type of a field),
-- what it is in one line, and perhaps more. v: is a method of variants, t: of
-- tensors, g: of pebble games; a leading colon is a command of the prompt.
-- An optional parameter or result ends in "?". A row with `usage` in place of
-- a signature is no Lua: a variable of the environment, a command.
local rows = {}

local function row(name, signature, brief, more)
  rows[#rows + 1] = { name = name, signature = signature, brief = brief,
                      more = more }
end

-- ---- variants ----

row("flin.variant", "definition: definition -> variant",
    "a variant from the mathematics of one token", [[
flin.variant {
  name  = "gla",
  input = { q = "t k", k = "t k", v = "t v", g = "t k : log_decay" },
  state = { S = "k v" },
  step  = function (x, s)
    local S = flin.exp(x.g) * s.S + flin.outer(x.k, x.v)
    return { S = S }, flin.dot(x.q, S)
  end,
}
Axes: t token, k key, v value, r rank, or your own; an input without t is a
constant of the head. A domain after the colon (normal, log_decay, unit,
unit_norm, positive, angle) says what random tests draw; a state that is an
angle (phi = "p : angle") is kept modulo 2 pi, also at the end. `mask = function
(i, j, p)` instead of step: see flin.mask_report; causal = false lets tokens
behind i weigh, too, transition = flin.transition.delta_rule() works under the
mask's decay. axes = { r = 2 } fixes sizes;
mode = "quadratic" takes a mask that does not factor, and a step whose sums are
polynomials of scores over pairs of tokens, without its states ("linear": with
them, of a mask's window its band; else by price); normalise = "softmax"
makes attention of it (score = function (s, i, j, p), scale): over all pairs,
of which v:step keeps the first and last of a window, or up to tokens = 4096.
initial = { D = 1, A_log = flin.initial.log_rates() } says how constants begin:
numbers, or functions of the place that give one; see flin.initial.uniform. Of
an input with tokens it is what flin.nn.LinearAttention gives at first at each.
]])
row("flin.layer", "definition: definition -> variant",
    "a layer: weights, products, norms, convolutions around variants", [[
flin.layer {
  name    = "mine",
  input   = { x = "t d" },
  weight  = { Wq = "d h k", Wk = "d h k", Wv = "d h v", Wo = "h v d" },
  forward = function (x, w)
    local y = flin.stdlib.linear { q = flin.dot(x.x, w.Wq),
                k = flin.dot(x.x, w.Wk), v = flin.dot(x.x, w.Wv) }
    return x.x + flin.dot(flin.rms_norm(y, "v"), w.Wo)
  end,
}
Heads are an axis as others are: tensors are [B, T, axes...], weights [axes...],
states [B, axes...]. A variant is called on a table of values: those have its
inputs' axes and one more for heads. forward, backward, step, reference and
check are those of variants, and gradients include the weights'. A product with
a weight is a matrix product, what stands between products and calls is derived
as a step of its own: v.form lists these parts. usual = { r = 16, k = function
(size) return size.d // size.h end } says how long axes are where nobody does:
see v:sizes. checkpoint = true: calls keep
their inputs alone for the way back.]])
row("flin.layers", "layers",
    "layers around variants: flin.layers.gated_deltanet")
row("flin.attention", "options?: table -> variant",
    "a variant composed of a decay, features and a transition", [[
flin.attention {
  decay = flin.decay.gated { per = "head" },
  features = flin.feature_map.l2norm(),
  transition = flin.transition.delta_rule(),
  scale = nil, mode = nil, name = "mine",
}
The inputs that the pieces bring stand in v.inputs. scale multiplies q; nil is
K^(-1/2). mode: as flin.variant's.]])
row("flin.stdlib", "stdlib",
    "the standard library's variants: flin.stdlib.gated_deltanet", nil)
row("flin.stdlib_names", "string[]", "their names, in order")
row("flin.version", "string", "flin's version")
row("flin.backend", "string?", "what runs calls that name no backend: \"cpu\"")
row("flin.threads", "integer?",
    "threads of calls that name no number; 0: one a core")

row("flin.validate", "boolean?",
    "do calls check domains, and that results are finite?", [[
For calls that do not say validate = true or false themselves; on at the prompt,
else as the environment says (FLIN_CHECK=1). What breaks its domain or is not
finite is an error with the first token, head and value; of a result it names
the operation that made it, and why states grow (keys longer than 1, a decay of
more than 1). validate = "growth" refuses these, finite or not. It reads each
tensor once more; on a GPU the call then waits for its results, and is not
checked while a CUDA graph is recorded. What has run has written its results.]])

local call = [[
A table of tensors by name, each [B, T, H, axes...] (constants of a head: [H,
axes...]). Also: initial_state = { S = tensor [B, H, axes...] }, cu_seqlens =
{ 0, 5, 12 } (packed sequences, B = 1), state_index = whole numbers [N] (the
states are entries of pools, [P, H, axes...], which are updated; -1: a place
that no sequence has), chunk = tokens at once, backend, threads, serial = true
(token by token), validate = true (see flin.validate);
of a layer, plan = "separate" (each part as kernels of its own), "fused" (norms,
gates and maps of a head in the steps of the variants it calls), "whole"
(products with weights, too, where they fit there), "tiles" (a product and the
program over rows that alone reads it, some tokens or some columns at a time),
"pieces" (for training on a GPU in less memory: variants in pieces of the call;
the least of memory times time, of all that is predicted to take a twentieth
more time or less) or "stack" (the same for a layer among many: of memory what
it keeps between the two ways, and a fifth more time), else the cheapest that is
predicted of the first two, or between them;
memory = bytes of what lies between these that there may be at a time (more is
made in tiles, the same in backward), and with "pieces" of all that a training
call takes, its result among it: the least time in that, or the least memory
where that is too little. Options may stand in a second table:
v:forward(inputs, { chunk = 64 }).]]

row("v:forward", "arguments: table -> tensor, tensors, table?",
    "y and the final states, computed chunk by chunk", call .. [[

A step that returns a table of results gives that table: r.y, r.NAME.
states = false: no final states are wanted (nil comes in their place), so that
sums can be made over pairs of tokens. save = true also returns `saved`, for
v:backward; of a layer, with checkpoint =
true, that keeps nothing but the arguments, and backward begins with the way
forward: the same bits.]])
row("v:backward", "arguments: table -> gradients",
    "gradients of the inputs and the initial state",
    call .. [[

dy = gradient of y, or { y = , NAME = } of results, dstate = { S = gradient of
the final state }; saved = what v:forward gave, instead of the arguments, which
must not have been written to; spend = true: it is not needed again, so that a
layer works in its memory (a call with it then begins with the way forward).
Of a layer, into = { Wq = tensor } adds the gradients of weights to float32
tensors, as for micro-batches; inplace = { "z" } writes the gradient of an
input that is given up over it, with the same bits. Of a mask over all pairs, on
a GPU, where no tiles of Hopper's tensor cores hold it: cache = bytes of a
block's memory that it may take, way = "blocks" or "tiles": the scores formed
anew, or written; else the one that moves less. Returns grad.q ...,
grad.initial_state.S; with states = false, or of a mask's window that is given
no states, not these.]])
row("v:step", "arguments: table -> tensor, tensors",
    "y and states after one token (T = 1), for decoding", [[
As v:forward, with state = { S = tensor }; inplace = true updates these.]])
row("v:verify", "arguments: table -> tensor, tensors",
    "y and the state behind each of some tokens, for speculative decoding", [[
As v:step, with any number of tokens T, which may be taken back afterwards:
states are [B, T, H, axes...], entry t what token t leaves. With state_index
[B, T + 1] they are entries of a pool: column 0 names the one that is read,
column t + 1 the one that token t's is written to, -1 where it is not kept.]])
row("v:summary", "arguments: table -> tensors, tensors",
    "what these tokens do to the state, whatever it is before them", [[
own.S [N, H, axes...], the state that they leave of one that is zero, and
transition.S: [N, H, K] where entries of axis k only decay, [N, H, K, K] where
the step erases. From a state S they leave M[k] S[k] + own, or the sum over j of
M[k, j] S[j] + own. So parts of a sequence can be worked on at the same time,
each from its own start then. Arguments as v:forward's, without initial_state.
Refused, with the reason, where the state is not one matrix that each token
changes by a matrix of its own; see v:stages.]])
row("v:stages", "-> table",
    "the order in which states are found, one stage after another", [[
Each is a table: states, their names; needs, the states of earlier stages that
they depend on; carry, how tokens act on them: "entries" and "max" (a number for
each entry, that it is multiplied by, or that is added before the larger one is
taken), "rows" or "matrix". Refused, with the term, where what a state becomes
is not linear in it.]])
row("v:stage", "i: integer -> variant",
    "the variant of a stage's states and those that it needs", [[
v:stage(i):summary(x) is what tokens do to them, with x.initial_state the states
that they need: own and the transition M by name. From a state S they leave
M S + own, where carry is "max" max(M + S, own); several states of one stage
have their rows below one another, and M [N, H, K, n K] each.]])
row("v:result", "i: integer -> variant",
    "of several results of a step: the variant that has result i alone", [[
They are counted as `tostring(v)` lists them. Its states are all of them.]])
row("v:parts", "sizes?: table -> table",
    "of a layer: what it is cut into, in an order in which it can run", [[
Each is a table: y and inputs, values { id, axes, timed, wide: float32 whatever
the call's tensors are; argument or number, if it is one }; step, whether it is
one (else the matrix product of its inputs, summed over axes `over`); heads and
taps, axes; states, the layer's that it carries. A host that runs parts itself
takes v:part(i, sizes).]])
row("v:part", "i: integer, sizes?: table -> variant",
    "of a layer: part i as a variant, if it is no product", [[
Its inputs and y have the axes that v:parts lists in `order`, behind the axis of
heads.]])
row("v:reference", "arguments: table -> tensor, tensors",
    "y and final states by the float64 step, token by token: the truth", call)
row("v:reference_backward", "arguments: table -> gradients",
    "gradients by the float64 step", "As v:backward.")
row("v:check", "options?: table -> check",
    "errors of the chunk form, the step and the gradients against float64", [[
Options: B, T, H, HV, sizes of axes (K = 64), size = of axes not named, dtype,
chunk, cu_seqlens, seed, backend, threads, backward = false. Numbers are
relative RMS errors; `worst` is the greatest. Where that is large, `trouble`
says what is not finite, or grows, and why.]])
row("v:gradcheck", "options?: table -> gradcheck",
    "gradients against differences of the float64 step", [[
For each input and initial state the derivative along random directions, by
central differences of v:reference, beside v:backward's and
v:reference_backward's. Options: B, T, H, sizes of axes, size = of axes not
named, chunk, backend, seed, directions. Numbers are relative errors; `worst`
is the greatest, less what cancellation explains: where float64 itself loses
more than 1e-9, v:backward may lose as many times more, 1000 at most. Where the
step jumps (along a count that it compares with numbers) there is no derivative:
such a row has `jumps` and is not part of it.]])
row("v:bench", "options?: table -> bench",
    "times: chunk form, token loop, decoding, and the machine's floor", [[
Options: B, T, H, sizes of axes, dtype, chunk, backend, threads, backward =
false, states = false (of calls that leave no final states, as in training),
seconds = of each row. Times are medians after a first run; the floor is the
time to read each argument and write each result once at the speed at which this
machine copies, measured then and there. With backend = "cuda" the inputs
are moved to the GPU first, and times are the GPU's own. `kernels` holds what
each kernel of these calls took, computed and moved; flin.picture.roofline
draws them.]])
row("v:random", "options?: table -> tensors",
    "random inputs of the domains that the variant names", [[
Options: B, T, H, HV, sizes of axes, size = of axes not named, dtype, seed.
v:forward(v:random { T = 8 }).]])
row("v:initial", "options?: table -> tensors",
    "constants and weights as the definition lets them begin, by name", [[
Those that its field `initial` has, without the axis of tokens. Options: H,
sizes of axes, size = of axes not named, dtype, seed.]])
row("v:sizes", "sizes?: table -> table",
    "how long each axis is: as given, by the definition, or as is usual", [[
flin.layers.gla:sizes { d = 1024, h = 4 } has k = 128, v = 256 and r = 16, as
the definition's field `usual` says.]])
row("v:plan", "options?: table -> plan",
    "the kernels that a machine would run, and what each moves", [[
Options: sizes of axes, machine = "cpu", "h200", "h100", "b200", "a100", "a10",
"l40s", "rtx4090" or "rtx5090", backward, chunk, format = "table", "dot"
(Graphviz), or "svg": see flin.picture.plan; from = "first" or "last" token, of
a mask of both directions; of sums that pairs of tokens can make, too, on a GPU,
or scans in blocks of a window: B, T, H, by which the cheaper is taken
(plan.mode, plan.ways), and mode = "linear", or "quadratic" and "blocks". Of a
mask over all pairs, on a GPU: B, T, H, dtype, and v:backward's cache and way.
Of a layer: B, T, beside = true, where weights of the same values lie beside
one another, and plan and memory, as v:forward has them; `plans` has the prices
of all of them.]])
row("v:io", "options?: table -> io",
    "least words that can be moved, beside what the plan moves", [[
Options: T, sizes of axes, cache = bytes, machine, backward, chunk, Z_input,
Z_QK, from (v:plan's). With backward, the plan of a mask over all pairs is the
schedule of attention's backward pass that moves fewer words: plan.way =
"blocks" or "tiles", as flin.pebble.attention has them. plan.kernels has both
as a GPU's kernels in that memory: of each words of a head, seconds of H heads,
and each kernel's sizes; and `way`, which is the one that v:backward takes.]])
row("v:mask", "options?: table -> tensor",
    "weight of token j in token i's result, [T, T]", [[
What comes out where q = k = (1, 0, ...) and v is the identity: of a mask, the
mask. Options: T, seed, sizes of axes, and inputs by name (g = tensor) in place
of random ones. flin.heat_map draws it as text; format = "svg", with log = true
perhaps, as flin.picture.mask does.]])
row("v:probe", "arguments: table -> table, tensors",
    "v:forward's results, and beside y what the step's probes see", [[
r.y and r.NAME of each flin.probe("NAME", value), for every token, wherever
calls run: v:probed():forward(arguments). A probe of a whole state takes T times
its memory, and the call goes token by token.]])
row("v:probed", "-> variant",
    "the variant whose results are v's and what its step probes", [[
It has all that variants have: p:reference(x) gives the values in float64,
p:step those of a token that is decoded, p:backward takes dy = { y = , NAME = }.
v itself is as it would be without probes. Made once.]])
row("v:map", "functions: table -> variant",
    "the variant whose inputs go through functions before the step", [[
v:map { q = function (q) return flin.l2norm(q) * 0.5 end }: each function gets
the input as a value and returns one with the same axes.]])
row("v:describe", "-> description",
    "what it takes, gives and keeps, and how it runs", [[
about (the comment that its script begins with), inputs, output and states with
name, axes, shape, domain, unit and what is wanted of values, axes with their
sizes, form. Prints as text.]])
row("v:dag", "options?: table -> string",
    "the step as assignments: what depends on what",
    "format = \"svg\" draws it, \"dot\" is for Graphviz.")
row("v:graph", "options?: table -> string", "the step's graph as text")
row("v:dump", "letters: string, options?: table -> string",
    "what passes make: T step, C chunk form, G joint, P plan, K schedules",
    [[
Options: sizes of axes, chunk, machine (P: "cpu"; of a GPU's the kernels that
are launched). K: each kernel's roles, buffers, values and instructions on that
GPU, or else Hopper, or why there is no schedule of it yet.]])
row("v:source", "backend: string, options?: table -> string",
    "the plan as CUDA C++: v:source(\"cuda\")", [[
What a call launches on such a GPU: with wgmma and TMA on sm_90a, tcgen05 and
TMA on sm_100a, mma.sync elsewhere, and cp.async before these. What its kernels
include stands before the first that does.
Options: sizes of axes, chunk, dtype, backward, serial (one token after
another), arch = "sm_90a", "sm_80" ..., from (v:plan's).]])
row("v:compile", "options?: table -> compiled",
    "compiled by NVRTC; no GPU needed", [[
Options as v:source's. Returns kernels, registers, spills, shared, seconds,
arch and cubins, one for each program, as a call compiles them: side by side,
one that spills again with other room. cubin is the first of them.]])
row("v:prepare", "arguments: table -> variant",
    "compiles what a call like this one needs, without running it", [[
The arguments of v:forward, v:step (with state) or v:backward (with dy). A
CUDA graph can be captured after it.]])
row("v.name", "string", "the variant's name")
row("v.inputs", "input[]",
    "name, axes, domain, unit of each input; what is wanted of values")
row("v.states", "state[]", "name, axes and angle (kept modulo 2 pi) of each")
row("v.output", "string", "y's axes")
row("v.outputs", "output[]", "name and axes of each result, y first")
row("v.probes", "string[]", "names of what the step probes: see flin.probe")
row("v.axes", "table", "sizes of axes, false where calls say")
row("v.about", "string", "the comment that its script begins with")
row("v.form", "string",
    "how each state goes on, and whether in chunks; a layer's parts")
row("v.detaches", "boolean", "does its step call flin.detach?")
row("v.is_layer", "boolean", "made by flin.layer: heads are axes as others")
row("v.beside", "table", "lists of a layer's weights of the same values", [[
In this order, each where the one before it ends, they are one matrix on a GPU:
two of "d h k" as halves of a [d, 2h, k], or of a [2h, k, d] that is transposed.
A list's field `over` has the axes that are summed. Numbers a head are float32
and are joined by copies alone.]])
row("v.note", "string?", "why the latest plan goes token by token, if it does")

-- ---- masks ----

row("flin.mask_report", "mask: function, options?: table -> mask_report",
    "how a mask factors, or what keeps it from factoring", [[
mask = function (i, j, p)
  if i < j then return 0 end
  return p.beta[j] * flin.exp(p.g_cumsum[i] - p.g_cumsum[j])
end
i and j are positions from 0; p.NAME[i] is an input of token i, p.NAME_cumsum
its sum up to there; one that is declared "t k" makes a mask for each key. A
stride, (i - j) % 4 > 0, is a state for each remainder. A band, in which i and
j may be coupled in any way, a late start and p.NAME[i - 100] look back 4096
tokens at most.]])
row("flin.mask_values", "mask: function, n: integer, inputs?: table -> table",
    "the mask of n tokens as rows of numbers")
row("flin.heat_map", "rows: table|tensor, colours?: string -> string",
    "numbers as a picture of text", [[
colours: "true" (24 bits), "256", or "ascii", which is usual.]])

-- ---- pictures ----

local drawing = [[
The text of an SVG, which follows a page's light or dark; theme = "light" or
"dark" names one. flin.save("x.svg", text) writes it, "x.png" as pixels.]]

row("flin.picture.mask",
    "mask: variant|tensor|table, options?: table -> string",
    "a mask as a map with axes and scale", [[
Of a variant what v:mask gives, its options with these. log = true, decades =
8: logarithmic; a mask with both signs has two colours. title, x, y.
]] .. drawing)
row("flin.picture.plan", "v: variant, options?: table -> string",
    "a plan's kernels in time, what they compute, what moves", [[
Options as v:plan's, and title.
]] .. drawing)
row("flin.picture.roofline", "bench: bench, options?: table -> string",
    "kernels as v:bench measured them, below the machine's roofs", [[
Each lies at the flops for a byte that it moves and at its flops a second, and
says how much of what memory or products would allow that is. A list of several
benches goes, too. title, width, height.
]] .. drawing)
row("flin.picture.bars", "rows: table, options?: table -> string",
    "bars of numbers, some beside each other in each row", [[
rows = { { name = "gla", values = { 0.7, 2.1 } }, ... }; series = { "flin",
"peer" }, unit = "ms", title, note, width.
]] .. drawing)
row("flin.picture.curves", "series: table, options?: table -> string",
    "lines through points, with levels to compare with", [[
series = { { name = "gla", points = { {step, loss}, ... } }, ... }; baselines =
{ { "order 0", 4.6 } }, log = true, from, to (of y), title, x, y, width, height;
format = "text" draws in the terminal: columns, rows, colours = "256".
]] .. drawing)

-- ---- element by element ----

local function unary(name, brief)
  row("flin." .. name, "x: value -> value", brief)
end

unary("abs", "|x|")
unary("cos", "cosine")
row("flin.detach", "x: value -> value", "x, through which no gradient goes", [[
As PyTorch's detach and JAX's stop_gradient: values are those of x, and the
gradient that comes to it goes no further. v:gradcheck refuses such steps:
differences move what is detached, too.]])
unary("exp", "e^x; of a log decay, the decay")
unary("floor", "the greatest whole number up to x")
unary("log", "natural logarithm")
unary("logsigmoid", "log(sigmoid(x)): a log decay from any number")
unary("relu", "max(x, 0)")
unary("rsqrt", "1 / sqrt(x)")
unary("sigmoid", "1 / (1 + exp(-x))")
unary("sign", "-1, 0 or 1")
unary("silu", "x sigmoid(x)")
unary("sin", "sine")
unary("softplus", "log(1 + exp(x))")
unary("sqrt", "square root")
unary("square", "x x")
unary("tanh", "hyperbolic tangent")
unary("wrap", "x modulo 2 pi")
row("flin.max", "a: value, b: value -> value", "the greater")
row("flin.min", "a: value, b: value -> value", "the lesser")
row("flin.lt", "a: value, b: value -> value", "1 where a < b, else 0")
row("flin.le", "a: value, b: value -> value", "1 where a <= b, else 0")
row("flin.gt", "a: value, b: value -> value", "1 where a > b, else 0")
row("flin.ge", "a: value, b: value -> value", "1 where a >= b, else 0")
row("flin.eq", "a: value, b: value -> value", "1 where a == b, else 0")
row("flin.where", "condition: value, a: value, b: value -> value",
    "a where the condition is not 0, else b")

-- ---- named axes ----

row("flin.dot", "a: value, b: value, axes?: string -> value",
    "the product summed over axes that a and b share", [[
All axes that both have, except t; a third argument names them instead:
flin.dot(k, S) is k's row times S, [v].]])
row("flin.outer", "a: value, b: value -> value",
    "the product over both's axes: outer(k, v) is [k v]", [[
They may share no axis (but t); flin.rename gives one another name.]])
row("flin.sum", "x: value, axes?: string -> value",
    "the sum over these axes, or all")
row("flin.mean", "x: value, axes?: string -> value",
    "the mean over these axes, or all")
row("flin.l2norm", "x: value, axes?: string -> value",
    "x over its norm along these axes, or all", "x / sqrt(sum x^2 + 1e-6).")
row("flin.unit_norm", "x: value, axes?: string -> value",
    "flin.l2norm by another name")
row("flin.rms_norm", "x: value, axes?: string -> value",
    "x over the root of its mean square along these axes, or all",
    "x / sqrt(mean x^2 + 1e-5).")
row("flin.layer_norm", "x: value, axes?: string -> value",
    "rms_norm of x less its mean along these axes, or all")
row("flin.amax", "x: value, axes?: string -> value",
    "the largest along an axis, in a layer",
    "Its gradient goes to the largest in equal parts.")
row("flin.logsumexp", "x: value, axes?: string -> value",
    "log of the sum of exp along an axis, in a layer", [[
Of rows of any length, in one pass. Its gradient is exp(x - y), of y alone:
where y is so large that float32 cannot hold what is beside it, that is lost.]])
row("flin.softmax", "x: value, axes?: string -> value",
    "exp(x - flin.logsumexp(x, axes)), in a layer")
row("flin.pick", "x: value, index: value, axis: string -> value",
    "the entry that an index names, from 0, in a layer", [[
The index is an input that is declared one: label = "t : index n", a tensor of
int64 or int32. flin.logsumexp(z, "n") - flin.pick(z, x.label, "n") is the
cross-entropy of logits z.]])
row("flin.size", "x: value, axis: string -> value", "how long the axis is")
row("flin.at", "x: value, axis: string, index: integer -> value",
    "one entry along an axis, from 1")
row("flin.rename", "x: value, from: string, to: string -> value",
    "the same value with an axis under another name")
row("flin.prev", "x: value -> value",
    "the value one token earlier: a state prev_NAME")
row("flin.probe", "name: string, x: value -> value",
    "names a value of a step, so that v:probe can show it", [[
local e = flin.probe("err", x.v - flin.dot(x.k, S))
It gives the value back, and changes nothing of the variant. A name is not an
input's, a state's, a result's, or another probe's: a function that a step calls
twice is handed one ("err" .. i). The value of an angle is refused, as it is
kept modulo 2 pi: probe its flin.cos.]])
row("flin.conv", "x: value, taps: value -> value",
    "in a layer: x convolved along tokens, a row of taps each", [[
taps is a weight of axes of x and one of its own: "h k w" for "t h k". The last
tap is the token's own; what came before the sequence is 0. The state conv_NAME
is the last w tokens of x.]])
row("flin.rotate", "x: value, angle: value, axis?: string -> value",
    "pairs of channels turned by an angle of half as many", [[
Declare the angle with an axis of its own: theta = "t p : angle".]])

-- ---- how constants and weights begin ----

row("flin.initial.uniform", "from?: number, to?: number -> function",
    "evenly between two numbers (0, 1)", [[
For the field `initial` of a variant or a layer, as any function (at) that
returns a number: at.h is the head, from 1 on, at.k the place along axis k,
at.size.h how many heads there are, at.last the last axis; at.uniform(from, to)
and at.normal(deviation) draw. g = function (at) return -8 * at.h / at.size.h
end.]])
row("flin.initial.normal", "deviation?: number -> function",
    "normally around 0, with this deviation (1)")
row("flin.initial.log_uniform", "from?: number, to?: number -> function",
    "between two numbers (1e-3, 1e-1), evenly in logarithms")
row("flin.initial.log_rates", "from?: number, to?: number -> function",
    "the log of what is even between two numbers (1, 16): A_log of Mamba-2")
row("flin.initial.steps", "from?: number, to?: number -> function",
    "a bias whose softplus is log_uniform (1e-3, 1e-1): Mamba-2's of dt")
row("flin.initial.frequencies", "base?: number -> function",
    "base^(-i / n) along the last axis (10000): rotary embeddings")
row("flin.initial.falling", "power?: number -> function",
    "1 - (i / n)^power along the last axis: RWKV's mixtures")
row("flin.initial.channels", "options: table -> function",
    "from one number to another over the channels of all heads", [[
flin.initial.channels { -5.5, 0.5, zigzag = 2.5 } adds 2.5 z |z| for z from -1
to 1 over each head's channels, as RWKV's decays begin.]])

-- ---- pieces of flin.attention ----

row("flin.decay.none", "-> table", "nothing is forgotten")
row("flin.decay.fixed", "-> table", "one log decay g a head")
row("flin.decay.exponential", "options?: table -> table",
    "exp(-exp(A_log) dt), as Mamba", [[
data_dependent = true; discretization = "euler" or "trapezoidal".]])
row("flin.decay.gated", "options?: table -> table",
    "a log decay g that the caller gives", [[
per = "head" or "key"; discretization = "euler" or "trapezoidal".]])
row("flin.decay.max_stabilized", "-> table",
    "exponential input and sigmoid forget gate, as mLSTM")
row("flin.feature_map.identity", "-> table", "keys and queries as they are")
row("flin.feature_map.l2norm", "-> table", "scaled to norm 1")
row("flin.feature_map.relu", "-> table", "max(x, 0)")
row("flin.feature_map.silu", "-> table", "x sigmoid(x)")
row("flin.feature_map.elu1", "-> table", "elu(x) + 1")
row("flin.feature_map.taylor", "-> table", "1 + q.k + (q.k)^2 / 2, as Based")
row("flin.feature_map.rope", "options?: table -> table",
    "pairs of channels turned by a running angle", "data_dependent = false.")
row("flin.feature_map.map", "f: function -> table",
    "your function of a value with axis k")
row("flin.transition.one_step_gd", "options?: table -> table",
    "S + k v^T: linear attention", "mimo_rank = 1.")
row("flin.transition.delta_rule", "options?: table -> table",
    "S + beta k (v - S^T k)^T: DeltaNet", "mimo_rank = 1.")
row("flin.transition.delta_product", "options?: table -> table",
    "several delta steps a token", "steps = 2.")
row("flin.transition.dplr", "-> table",
    "diagonal plus low rank, as RWKV-7")
row("flin.transition.preconditioned_gd", "options?: table -> table",
    "keys scaled by the inverse of their variance", [[
preconditioner = "diagonal", mimo_rank = 1.]])
row("flin.transition.custom", "update: function|table -> table",
    "your own update(c)", "See stdlib/transition.lua for what c holds.")

-- ---- tensors ----

local fresh = [[
Sizes one by one or as a table. Options: dtype = "float32", "bfloat16",
"float16" or "float64"]]

row("flin.tensor", "numbers: table, options?: table -> tensor",
    "a tensor from nested tables", "Options: dtype.")
row("flin.zeros", "sizes: table|integer, ... -> tensor", "zeros",
    fresh .. ".")
row("flin.ones", "sizes: table|integer, ... -> tensor", "ones", fresh .. ".")
row("flin.full", "sizes: table|integer, ... -> tensor",
    "one number everywhere", "flin.full({ 2, 3 }, 0.5).")
row("flin.arange", "n: integer, options?: table -> tensor", "0 to n - 1")
row("flin.rand", "sizes: table|integer, ... -> tensor",
    "uniform from 0 to 1", fresh .. ", seed.")
row("flin.randn", "sizes: table|integer, ... -> tensor", "normal",
    fresh .. ", seed.")
row("flin.seed", "n: integer", "starts the random numbers anew")
row("flin.is_tensor", "x: any -> boolean", "is x a tensor?")
row("flin.load", "path: string -> tensor|table",
    "a .npy file's tensor, a .safetensors file's tensors by name")
row("flin.save", "path: string, tensors: tensor|table|string",
    "a tensor as .npy, tensors by name as .safetensors, a text", [[
A text is written as it is; where the path ends in .png, that of an SVG becomes
pixels (in the program flin, by librsvg).]])

row("t.shape", "integer[]", "sizes of the axes")
row("t.dtype", "string", "\"float32\", \"bfloat16\", \"float16\", \"float64\"")
row("t.rank", "integer", "how many axes")
row("t.count", "integer", "how many elements")
row("t:to", "dtype: string -> tensor", "a copy of another dtype")
row("t:clone", "-> tensor", "a copy")
row("t:fill", "x: number -> tensor", "x into every element")
row("t:copy", "other: tensor -> tensor", "other's numbers into t")
row("t:totable", "-> table", "as nested tables")
row("t:narrow", "axis: integer, start: integer, length: integer -> tensor",
    "a view of some entries of an axis; from 1")
row("t:transpose", "a: integer, b: integer -> tensor",
    "a view with two axes exchanged")
row("t:reshape", "sizes: table|integer, ... -> tensor",
    "the same elements in another shape; -1: what fits")
row("t:contiguous", "-> tensor", "row-major, copied if need be")
row("t:expand", "axis: integer, n: integer -> tensor",
    "a new axis along which t repeats")
row("t:windows", "axis: integer, n: integer, at: integer -> tensor",
    "each entry and those after it, along a new axis")
row("t:map", "f: function -> tensor", "f of each element")
row("t:sum", "-> number", "the sum of all elements")
row("t:mean", "-> number", "their mean")
row("t:max", "-> number", "the greatest; NaN wins")
row("t:min", "-> number", "the least; NaN wins")
row("t:maxabs", "-> number", "the greatest absolute value; NaN wins")
row("t:norm", "-> tensor", "the norm of each row")
row("t:argmax", "-> tensor", "where each row is greatest; from 1")
row("t:logsumexp", "-> tensor", "log of the sum of exp, of each row")
row("t:gather", "index: tensor -> tensor", "of each row the entry named")
row("t:unit", "-> tensor", "each row scaled to norm 1")
row("t:matmul", "m: tensor -> tensor", "each row times a matrix")
row("t:sum_over", "axis: integer, weights?: tensor -> tensor",
    "the sum along an axis")

row("flin.host.matmul", "a: tensor, b: tensor, options?: table -> tensor",
    "the rows of a times the matrix b", [[
transpose = "a" or "b", into = tensor, add = true.]])
row("flin.host.take", "table: tensor, index: tensor -> tensor",
    "the rows that the index names")
row("flin.host.put", "table: tensor, index: tensor, rows: tensor",
    "adds rows where the index says")
row("flin.host.add", "y: tensor, x: tensor, scale?: number -> tensor",
    "y += scale x, in place")
row("flin.host.sum_rows", "x: tensor -> tensor", "all rows summed")
row("flin.host.mul", "a: tensor, b: tensor -> tensor", "element by element")
row("flin.host.apply", "name: string, x: tensor -> tensor",
    "an element-wise function")
row("flin.host.apply_grad", "name: string, x: tensor, dy: tensor -> tensor",
    "its gradient")
row("flin.host.norm", "kind: string, x: tensor -> tensor",
    "each row scaled: \"rms\" or \"l2\"")
row("flin.host.norm_grad", "kind: string, x: tensor, dy: tensor -> tensor",
    "its gradient")
row("flin.host.cross_entropy",
    "logits: tensor, target: tensor -> number, tensor",
    "the mean loss in nats, and its gradient")
row("flin.host.adam",
    "p: tensor, grad: tensor, m: tensor, v: tensor, options: table",
    "one step in place", "step, rate, beta1, beta2, eps, decay.")

-- ---- the pebble game ----

row("flin.pebble.game", "words: integer -> game",
    "a red-blue pebble game with so many words of fast memory")
row("flin.pebble.attention", "options: table -> table",
    "words that attention's schedules move", [[
n, d, words, window, way = "blocks" or "tiles", play = true.]])
row("g:input", "x: number -> integer", "a value in slow memory")
row("g:load", "a: integer", "from slow memory to fast")
row("g:store", "a: integer", "from fast memory to slow")
row("g:drop", "a: integer", "out of fast memory")
row("g:compute", "x: number, ... -> integer",
    "a value from operands in fast memory")
row("g:again", "a: integer, ...", "the same value once more")
row("g:value", "a: integer -> number", "its number")
row("g:is_red", "a: integer -> boolean", "is it in fast memory?")
row("g:is_blue", "a: integer -> boolean", "is it in slow memory?")
row("g:count", "-> table", "loads, stores, io, now, peak")

-- ---- help ----

row("flin.help", "name?: string -> string", "what this table says of a name")
row("flin.luacats", "-> string", "this table as definitions for editors")
row("flin.cuda", "-> table?, string?",
    "the GPU and its compiler, or nil and why there is none", [[
name, arch, driver, nvrtc, nvrtc_path, processors, cache (the folder of
compiled kernels; "" where none is used), cache_refused (why not: others may
write there; else ""), and the bytes that tensors take, `used`, what is kept for
more, `kept`, and the most that tensors and calls' workspaces have taken at a
time, `peak`.]])
row("flin.clock", "-> number", "seconds, from some time on")

-- ---- the environment ----

local function variable(name, usage, brief, more)
  rows[#rows + 1] = { name = name, usage = usage, brief = brief, more = more }
end

variable("FLIN_CHECK", "=1", "validates all calls that do not say", [[
In Lua, C and Python: see flin.validate.]])
variable("FLIN_CACHE", "=FOLDER", "compiled kernels of a GPU are kept here", [[
Else $XDG_CACHE_HOME/flin, else $HOME/.cache/flin; flin.cuda().cache says which.
"off": nowhere. A folder that others may write to is not used, and that is said
once.]])
variable("FLIN_BLAS", "=0 or =1", "products of layers by OpenBLAS", [[
Where libopenblas.so.0 is found. Else it is taken where it is faster than flin's
own products are: on machines with neither AVX2 nor AVX-512.]])
variable("FLIN_ARCH", "=80", "kernels that an earlier GPU has, too", [[
To compare: 80 are those of an A100, planned for its shared memory, whatever
later GPU runs them.]])
variable("FLIN_SCHEDULE", "=0", "kernels whose warps all do the same", [[
To compare: else those that have a schedule by roles (flin -d K shows them) run
by it. -3: all but the third do.]])
variable("FLIN_SEGMENTS", "=N", "long sequences on a GPU in so many parts", [[
To compare: 1 never cuts one. Else few long sequences are cut where that is
predicted to be faster, and the state has a transition (v:summary).]])
variable("FLIN_PIECES", "=N", "a layer's plan = \"pieces\" in so many", [[
To compare: else as many as the layer chooses. 4again: the way back
begins each piece with its way forward; 4againrows: what convolutions and norms
give rules is made again, too.]])
variable("FLIN_GRAPHICS", "=NAME", "how the terminal shows pictures", [[
"kitty", "sixel", or anything else: as text. Else the terminal is asked.]])
variable("PAGER", "=COMMAND", "shows what is longer than the terminal", [[
Else less.]])
variable("LESS", "=OPTIONS", "those of less; else FRX")
variable("FLIN_INIT", "=TEXT or =@FILE", "Lua that the program runs first", [[
Not with -E.]])
variable("FLIN_LIB", "=PATH", "the libflin.so that Python loads", [[
And that a wheel is made with; else the one that came along.]])
variable("FLIN_PROGRAM", "=PATH", "the program that Python's `flin` runs", [[
Else the one that came along.]])
variable("XDG_CACHE_HOME", "=FOLDER", "caches are kept here: see FLIN_CACHE")
variable("XDG_STATE_HOME", "=FOLDER", "the prompt's history is kept here", [[
In flin/history; else under $HOME/.local/state.]])
variable("HOME", "=FOLDER", "caches, history and NVRTC of pip are found in it")
variable("CUDA_PATH", "=FOLDER", "NVRTC is looked for in its lib folders", [[
After what the process has loaded, pip's packages in $VIRTUAL_ENV,
$CONDA_PREFIX, $HOME/.local, /usr/local and /usr, and what the loader finds;
before /usr/local/cuda*.]])
variable("VIRTUAL_ENV", "=FOLDER", "NVRTC is looked for here: see CUDA_PATH")
variable("CONDA_PREFIX", "=FOLDER", "and here")
variable("TERM", "=NAME", "no colours and no editing where it is \"dumb\"")
variable("COLORTERM", "=truecolor", "24 bits of colour in heat maps")
variable("NO_COLOR", "=1", "no colours")

return rows
