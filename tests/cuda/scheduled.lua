-- Calls whose kernels a schedule is made for, by the float64 step: types,
-- heads that share, sizes, states, sequences.
--   flin tests/cuda/scheduled.lua [long] [NAME[,K=64...] ...]
--   flin tests/cuda/scheduled.lua some             every fifth of these
--   flin tests/cuda/scheduled.lua sweep [NAME]    all variants, many sizes
--   flin tests/cuda/scheduled.lua forward [NAME[,V=64] ...]   all, forward
-- alone, from initial states, sequences of many lengths
--   flin tests/cuda/scheduled.lua cut [NAME ...]   the same, of more chunks
--   flin tests/cuda/scheduled.lua small    what is cut where a block has little
-- memory, both ways
--   flin tests/cuda/scheduled.lua parts    a long one, which blocks share where
-- there are many multiprocessors
-- typed=1: gates and constants in float32, gradients from what forward saved;
-- typed=2: gates that are matrices, too;
-- states=1: states of 16 bits. scaled=1: queries times K^-1/2. loud=8: times 8,
-- where exponentials of scores are beyond float32. long: few
-- sequences, cut in segments where there are so many multiprocessors; two
-- heads, or sequences, take half as many segments each.
-- On a driver of tests FAKE_SOURCES counts the programs from schedules.
local flin = require "flin"
local suite = require "suite"
local expect = suite.expect

suite.gpu()

local D <const>, F <const> = flin.decay, flin.feature_map
local T <const> = flin.transition
-- Each is made where a case names it: there are many.
local function composed(decay, features, transition)
  return function ()
    return flin.attention { decay = decay, features = features,
                            transition = transition }
  end
end

local function variant(definition)
  return function () return flin.variant(definition) end
end

-- Of keys that are zero no zeros.
local function units(u)
  return flin.l2norm(flin.exp(u), "k")
end

local function oscillator(name, gates, angles, read_both)
  return variant {
    name  = name,
    input = { q = "t k", k = "t k", v = "t v", g = gates .. " : log_decay",
              w = angles },
    state = { re = "k v", im = "k v" },
    step  = function (x, s)
      local a <const> = flin.exp(x.g)
      local cos <const>, sin <const> = flin.cos(x.w), flin.sin(x.w)
      local re = a * (cos * s.re - sin * s.im) + flin.outer(x.k, x.v)
      local im = a * (sin * s.re + cos * s.im)
      local y = flin.dot(x.q, re)
      return { re = re, im = im }, read_both and y - flin.dot(x.k, im) or y
    end,
  }
end

-- Beside the library: a result that is divided by its norm, whose way forward
-- is from a schedule; compositions, all of whose kernels are.
local more <const> = {
  precond_plain = composed(D.none {}, F.identity {}, T.preconditioned_gd {}),
  precond_fixed = composed(D.fixed {}, F.identity {}, T.preconditioned_gd {}),
  precond_key = composed(D.gated { per = "key" }, F.identity {},
                         T.preconditioned_gd {}),
  precond_key_ranks = composed(D.gated { per = "key" }, F.identity {},
                               T.preconditioned_gd { mimo_rank = 2 }),
  rope_ranks = composed(D.none {}, F.rope {}, T.one_step_gd { mimo_rank = 2 }),
  turned_ranks = composed(D.gated {}, F.rope { data_dependent = true },
                          T.one_step_gd { mimo_rank = 2 }),
  trapezoid_ranks = composed(D.gated { discretization = "trapezoidal" },
                             F.identity {}, T.one_step_gd { mimo_rank = 2 }),
  trapezoid_norms = composed(D.exponential { discretization = "trapezoidal" },
                             F.l2norm {},
                             T.preconditioned_gd { mimo_rank = 2 }),
  -- norms of the keys of the token before
  trapezoid_key_ranks = composed(
    D.exponential { discretization = "trapezoidal" }, F.l2norm {},
    T.one_step_gd { mimo_rank = 2 }),
  rope_delta = composed(D.none {}, F.rope {},
                        T.delta_rule { mimo_rank = 2 }),
  key_steps = composed(D.gated { per = "key" }, F.l2norm {},
                       T.delta_product { steps = 2 }),
  four_steps = composed(D.gated {}, F.l2norm {},
                        T.delta_product { steps = 4 }),
  l2_steps = composed(D.fixed {}, F.l2norm {}, T.delta_product { steps = 2 }),
  stabilised = composed(D.max_stabilized {}, F.l2norm {}, T.one_step_gd {}),
  dplr_plain = composed(D.none {}, F.identity {}, T.dplr {}),
  mesa_net = function ()
    return dofile "tests/variants/mesa_net.lua".variant(flin)
  end,
  dplr_fixed = composed(D.fixed {}, F.identity {}, T.dplr {}),
  key_ranks = composed(D.gated { per = "key" }, F.relu {},
                       T.delta_rule { mimo_rank = 2 }),
  -- of four rows of a token one is empty, of eight three; features of which
  -- zero is none
  three_ranks = composed(D.gated {}, F.elu1 {},
                         T.one_step_gd { mimo_rank = 3 }),
  three_key_delta = composed(D.gated { per = "key" }, F.map(units),
                             T.delta_rule { mimo_rank = 3 }),
  three_steps = composed(D.gated {}, F.l2norm {},
                         T.delta_product { steps = 3 }),
  seven_steps = composed(D.gated {}, F.l2norm {},
                         T.delta_product { steps = 7 }),
  twelve_steps = composed(D.gated {}, F.l2norm {},
                          T.delta_product { steps = 12 }),
  nine_turned_steps = composed(D.gated { per = "key" },
                               F.rope { data_dependent = true },
                               T.delta_product { steps = 9 }),
  -- real and imaginary part of one state: numbers of the token, of a token's
  -- keys, of a head's
  oscillator = oscillator("oscillator", "t", "t"),
  oscillators = oscillator("oscillators", "t k", "t k", true),
  s4d = oscillator("s4d", "k", "k"),
  normed_gla = variant {
    name  = "normed_gla",
    input = { q = "t k", k = "t k : unit_norm", v = "t v",
              g = "t k : log_decay" },
    state = { S = "k v" },
    step  = function (x, s)
      local S = flin.exp(x.g) * s.S + flin.outer(x.k, x.v)
      local y = flin.dot(x.q, S)
      return { S = S }, y * flin.rsqrt(flin.sum(y * y, "v") + 1)
    end,
  },
  -- what is some tokens late
  three_taps = variant {
    name  = "three_taps",
    input = { q = "t k", k = "t k", v = "t v", g = "t : log_decay" },
    state = { S = "k v" },
    step  = function (x, s)
      local k, v = flin.prev(x.k), flin.prev(x.v)
      local S = flin.exp(x.g) * s.S + flin.outer(x.k, x.v)
              + flin.outer(k, v) / 2
              + flin.outer(flin.prev(k), flin.prev(v)) / 4
      return { S = S }, flin.dot(x.q, S)
    end,
  },
  late_values = variant {
    name  = "late_values",
    input = { q = "t k", k = "t k : unit_norm", v = "t v", beta = "t : unit" },
    state = { S = "k v" },
    step  = function (x, s)
      local v = flin.prev(flin.prev(x.v))
      local late = x.v + v / 2 + flin.prev(v) / 4
      local S = s.S + flin.outer(x.beta * x.k, late - flin.dot(x.k, s.S))
      return { S = S }, flin.dot(x.q, S)
    end,
  },
  -- decays per value, of a step that erases nothing, and of one that erases
  -- along two values
  value_decay = variant {
    name  = "value_decay",
    input = { q = "t k", k = "t k", v = "t v", gv = "t v : log_decay" },
    state = { S = "k v" },
    step  = function (x, s)
      local S = flin.exp(x.gv) * s.S + flin.outer(x.k, x.v)
      return { S = S }, flin.dot(x.q, S)
    end,
  },
  value_dplr = variant {
    name  = "value_dplr",
    input = { q = "t k", k = "t k", v = "t v", a = "t v : unit_norm",
              gv = "t v : log_decay", beta = "t : unit" },
    state = { S = "k v" },
    step  = function (x, s)
      local S = flin.exp(x.gv) * s.S
      S = S - flin.outer(x.beta * flin.dot(S, x.a), x.a)
      return { S = S + flin.outer(x.k, x.v) }, flin.dot(x.q, S)
             + flin.dot(x.q, x.k) * x.v
    end,
  },
  -- and of ones that erase what keys hold, of the state behind the decay and
  -- before it
  value_delta = variant {
    name  = "value_delta",
    input = { q = "t k", k = "t k : unit_norm", v = "t v",
              gv = "t v : log_decay", beta = "t : unit" },
    state = { S = "k v" },
    step  = function (x, s)
      local S = flin.exp(x.gv) * s.S
      S = S + flin.outer(x.beta * x.k, x.v - flin.dot(x.k, S))
      return { S = S }, flin.dot(x.q, S)
    end,
  },
  value_before = variant {
    name  = "value_before",
    input = { q = "t k", k = "t k", v = "t v", a = "t k : unit_norm",
              b = "t k : unit_norm", gv = "t v : log_decay" },
    state = { S = "k v" },
    step  = function (x, s)
      local S = flin.exp(x.gv) * s.S - flin.outer(x.b, flin.dot(x.a, s.S)) / 2
      return { S = S + flin.outer(x.k, x.v) }, flin.dot(x.q, S)
             + flin.dot(x.q, x.k) * x.v
    end,
  },
  -- states that stand in each other, one without a gate
  heavy_ball = variant {
    name  = "heavy_ball",
    input = { q = "t k", k = "t k : unit_norm", v = "t v", mu = "t : unit",
              beta = "t : unit" },
    state = { M = "k v", S = "k v" },
    step  = function (x, s)
      local error = x.v - flin.dot(x.k, s.S)
      local M = x.mu * s.M / 2 + flin.outer(x.beta * x.k / 4, error)
      return { M = M, S = s.S + M }, flin.dot(x.q, s.S + M)
    end,
  },
  -- a number of either sign that is made of what another state holds, whose
  -- products of pairs are kept a row late
  -- an average by the exponentials of keys, of which the largest so far, less
  -- what each entry forgets, is taken (RWKV-4)
  largest = variant {
    name  = "largest",
    input = { k = "t v", v = "t v", g = "t v : log_decay", w = "v : unit" },
    state = { p = "v", a = "v", b = "v" },
    step  = function (x, s)
      local p = flin.max(s.p + x.g - x.w, x.k)
      local old, new = flin.exp(s.p + x.g - x.w - p), flin.exp(x.k - p)
      local a, b = old * s.a + new * x.v, old * s.b + new
      return { p = p, a = a, b = b }, a / (b + 1)
    end,
  },
  read_sign = variant {
    name  = "read_sign",
    input = { q = "t k", k = "t k : unit_norm", v = "t v" },
    state = { C = "k l", S = "k v" },
    step  = function (x, s)
      local k = flin.rename(x.k, "k", "l")
      local C = 0.9 * s.C + 0.1 * flin.outer(x.k, k)
      local sign = flin.tanh(flin.dot(x.q, flin.dot(s.C, k)))
      local S = sign * s.S + flin.outer(x.k, x.v)
      return { C = C, S = S }, flin.dot(x.q, S)
    end,
  },
  band_of_three = variant {
    name = "band_of_three", mask = function (i, j, p)
      if i < j then return 0 end
      if i - j < 3 then return p.b[j] end
      return flin.exp(p.g_cumsum[i] - p.g_cumsum[j])
    end,
  },
  -- a number of the token that its state has no need for
  scaled_result = variant {
    name  = "scaled_result",
    input = { q = "t k", k = "t k", v = "t v", b = "t" },
    state = { S = "k v" },
    step  = function (x, s)
      local S = s.S + flin.outer(x.k, x.v)
      return { S = S }, flin.sigmoid(x.b) * flin.dot(x.q, S)
    end,
  },
}

-- What each head has by itself, a rank each: a number or a vector, in what is
-- written, what decays, what is read, and in what is solved for.
local exp <const>, dot <const>, sum <const> = flin.exp, flin.dot, flin.sum
local function ranked(name, axes, input, step)
  more[name] = variant { name = name, axes = axes, input = input,
                         state = { S = "k v" }, step = step }
end
ranked("rank_number", { r = 2 },
       { q = "t k", k = "t r k", v = "t r v", w = "r" }, function (x, s)
  local S = s.S + dot(flin.sigmoid(x.w) * x.k, x.v, "r")
  return { S = S }, dot(x.q, S)
end)
ranked("rank_decay", { r = 2 },
       { q = "t k", k = "t r k", v = "t r v", g = "t : positive",
         w = "r k" }, function (x, s)
  local S = exp(-sum(exp(x.w), "r") * x.g) * s.S + dot(x.k, x.v, "r")
  return { S = S }, dot(x.q, S)
end)
ranked("rank_keys", { r = 4 },
       { q = "t k", k = "t r k", v = "t r v", g = "t : log_decay",
         w = "r k" }, function (x, s)
  local S = exp(x.g) * s.S + dot(x.w * x.k, x.v, "r")
  return { S = S }, dot(x.q, S)
end)
ranked("rank_reads", { r = 2 },
       { q = "t r k", k = "t k", v = "t v", w = "r v", a = "r" },
       function (x, s)
  local S = s.S + flin.outer(x.k, x.v)
  return { S = S }, sum(flin.tanh(x.w) * x.a * dot(x.q, S, "k"), "r")
end)
ranked("rank_queries", { r = 2 },
       { q = "r k", k = "t k", v = "t v", g = "t : log_decay", w = "t r" },
       function (x, s)
  local S = exp(x.g) * s.S + flin.outer(x.k, x.v)
  return { S = S }, sum(x.w * dot(x.q, S, "k"), "r")
end)
ranked("rank_delta", { r = 2 },
       { q = "t k", k = "t r k : unit_norm", v = "t v", w = "r v", b = "r" },
       function (x, s)
  local error = x.w * x.v - dot(x.k, s.S, "k")
  local S = s.S + dot(flin.sigmoid(x.b) / 2 * x.k, error, "r")
  return { S = S }, dot(x.q, S)
end)
ranked("rank_late", { r = 2 },
       { q = "t k", k = "t r k", v = "t v", w = "r v", g = "t : log_decay" },
       function (x, s)
  local late = dot(flin.prev(x.k), x.w * flin.prev(x.v), "r")
  local S = exp(x.g) * s.S + late + dot(x.k, x.w * x.v, "r")
  return { S = S }, dot(x.q, S) + sum(x.w, "r") * x.v
end)
ranked("rank_three", { r = 3 },
       { q = "t k", k = "t r k", v = "t v", w = "r v", g = "t : log_decay",
         b = "t r" }, function (x, s)
  local late = dot(flin.prev(x.k), x.w * flin.prev(x.v), "r")
  local S = exp(x.g) * s.S + late
          + dot(x.k, (1 + flin.sigmoid(x.b)) * x.w * x.v, "r")
  return { S = S }, dot(x.q, S) + sum(x.w, "r") * x.v
end)
-- Of what is zero in a token's empty rows there is nothing that is added up.
ranked("rank_filled", { r = 3 },
       { q = "t k", k = "t r k", v = "t r v", g = "t : log_decay" },
       function (x, s)
  local error = exp(x.v / 4) - dot(units(x.k), exp(x.g) * s.S, "k")
  local S = exp(x.g) * s.S + dot(units(x.k) / 3, error, "r")
  return { S = S }, dot(x.q, S)
end)
ranked("rank_filled_sum", { r = 5 },
       { q = "t k", k = "t r k", v = "t r v", g = "t : log_decay" },
       function (x, s)
  local S = exp(x.g) * s.S + dot(units(x.k), exp(x.v / 4), "r")
  return { S = S }, dot(x.q, S)
end)
-- Each of one beside each of the other; twice as many of one as of the other:
-- no rows of tokens.
ranked("rank_pairs", { r = 2, m = 2 },
       { q = "t k", k = "t r k", v = "t r v", l = "t m k", z = "t m v",
         a = "t r", b = "t m", w = "m" }, function (x, s)
  local both = sum(sum(flin.tanh(x.a + x.b * x.w), "r"), "m")
  local S = s.S + both * dot(x.k, x.v, "r") + dot(x.l, x.z, "m")
  return { S = S }, dot(x.q, S)
end)
ranked("rank_twice", { r = 4, m = 2 },
       { q = "t k", k = "t r k", v = "t r v", l = "t m k", z = "t m v",
         w = "r v" }, function (x, s)
  local S = s.S + dot(x.k, x.w * x.v, "r") + dot(x.l, x.z, "m")
  return { S = S }, dot(x.q, S)
end)

-- Many documents of one chunk, which a block has one after another: what takes
-- chunks in turn must not pass what others have yet to do. Behind them a long
-- one.
local documents = {}
for i = 0, 60 do documents[#documents + 1] = i end
documents = ",B=1,T=300,H=1,K=64,V=64,cu=" .. table.concat(documents, "/")
            .. "/300"

local cases <const> = {
  "gated_deltanet" .. documents, "kda" .. documents, "gla" .. documents,
  "lightning" .. documents,
  "simple_gla,B=1,T=130,H=1,HV=2,K=64,V=64,dtype=float16",
  "mamba2,B=2,T=70,H=1,HV=3,K=32,V=96,typed=1",
  -- two of four heads in turn by a block
  "simple_gla,B=1,T=570,H=1,HV=4,K=64,V=64",
  "simple_gla,B=1,T=130,H=2,K=128,V=128",
  "lightning,B=1,T=130,H=2,K=64,V=64,states=1",
  "deltanet,B=1,T=100,H=1,K=64,V=128",
  "simple_gla,B=1,T=70,H=1,K=64,V=192",
  "gla,B=1,T=100,H=1,HV=2,K=64,V=64,typed=1",
  -- rows of a state that are no whole tiles
  "normed_gla,B=1,T=70,H=1,K=96,V=48",
  -- a vector by keys has fewer rows than a fragment
  "kda,B=1,T=200,H=1,K=48,V=48",
  -- four warpgroups change sums of a chunk of 32 where they lie
  "kda,B=1,T=40,H=1,K=256,V=256",
  -- vectors that a walk carries, found by scans with gates
  "precond_gdn,B=1,T=130,H=1,K=64,V=64,states=1",
  "hgrn2,B=1,T=70,H=1,K=128,V=128,scaled=1",
  -- dy is scaled, which scores are not
  "deltanet,B=2,T=70,H=1,K=128,V=128,scaled=1",
  "iplr,B=1,T=70,H=1,HV=2,K=40,V=72,cu=0/3/20/70,scaled=1",
  -- exponents by their running maximum; a ratio
  "mlstm,B=1,T=130,H=1,K=64,V=64",
  "mlstm,B=1,T=100,H=2,K=64,V=64,states=1",
  -- a vector that lanes of a walk add up
  "rwkv6,B=1,T=100,H=2,K=64,V=64",
  -- cut anew: scores and solves kept for two kernels over all chunks
  "rwkv7,B=1,T=70,H=1,K=128,V=128,typed=1",
  -- a result that is kept, too, and a number that sums wait for
  "stabilised,B=1,T=70,H=1,K=64,V=64",
  -- matrices of earlier tokens that are kept
  "dplr_fixed,B=1,T=70,H=1,K=64,V=64",
  -- cut in many: the sums that a gate's gradient subtracts see the same scores
  "dplr_fixed,B=1,T=300,H=2,K=128,V=128",
  -- a vector that a slice of the keys finds in memory, a matrix of earlier
  -- tokens that is kept
  "lightnet,B=1,T=70,H=1,K=128,V=128",
  -- a constant matrix that products find, of rows that are padded
  "cyfa,B=1,T=70,H=2,K=64,V=64,M=64,P=32,R=63,typed=1",
  -- ranks are rows of a chunk; a token's are joined one by one
  "mimo_deltanet,B=1,T=70,H=1,K=64,V=128",
  "deltaproduct,B=1,T=73,H=1,K=64,V=64,cu=0/3/70/73",
  "mimo_deltanet,B=2,T=40,H=1,HV=2,K=64,V=64,typed=1",
  -- a state that is kept, and no matrix; scans with a gate for all tokens, and
  -- for each entry
  "precond_plain,B=1,T=70,H=2,K=64,V=64",
  "precond_fixed,B=1,T=130,H=1,K=64,V=64,cu=0/3/70/130",
  "precond_key,B=1,T=70,H=1,K=64,V=64,typed=1",
  -- constants that have ranks: as many values, of which each row has its own
  "mamba3_mimo,B=2,T=40,H=2,K=64,V=64",
  "rank_number,B=2,T=70,H=2,K=64,V=64,typed=1",
  "rank_decay,B=1,T=73,H=1,K=64,V=64,cu=0/3/70/73",
  "rank_keys,B=1,T=40,H=2,HV=4,K=64,V=64,dtype=float16",
  "rank_reads,B=2,T=70,H=1,K=64,V=64",
  "rank_queries,B=1,T=73,H=1,K=64,V=64,cu=0/3/70/73",
  "rank_delta,B=1,T=70,H=2,K=64,V=64",
  "rank_late,B=1,T=73,H=1,K=64,V=64,cu=0/3/70/73",
  "rank_late,B=1,T=40,H=1,K=64,V=64,dtype=float32,states=1",
  "rank_pairs,B=1,T=70,H=1,K=64,V=64",
  "rank_twice,B=1,T=70,H=1,K=64,V=64",
  -- sums along the chunk of what has ranks: angles, decays per key, energies
  "rope_ranks,B=1,T=70,H=1,K=64,V=64,cu=0/3/70",
  "turned_ranks,B=1,T=70,H=1,K=64,V=32",
  "rope_delta,B=1,T=70,H=1,K=64,V=64,cu=0/3/70",
  "l2_steps,B=1,T=70,H=1,K=64,V=64",
  "key_steps,B=1,T=73,H=1,K=64,V=64,cu=0/3/70/73",
  -- four of them, joined one by one
  "four_steps,B=1,T=73,H=1,K=64,V=64,cu=0/3/70/73",
  "key_ranks,B=1,T=73,H=1,K=64,V=64,cu=0/3/70/73",
  "three_ranks,B=2,T=40,H=1,HV=2,K=64,V=64,dtype=float16",
  "three_key_delta,B=1,T=40,H=1,K=64,V=64,typed=1",
  "three_steps,B=1,T=73,H=1,K=64,V=64,cu=0/3/70/73",
  -- tokens of eight rows, and of sixteen: a lane's two rows are of one
  "seven_steps,B=1,T=19,H=1,K=64,V=32,cu=0/3/18/19",
  "twelve_steps,B=1,T=11,H=1,K=32,V=64,cu=0/3/10/11",
  -- sums over a token's rows that go along tokens anyway
  "nine_turned_steps,B=1,T=11,H=1,K=32,V=32,cu=0/3/10/11",
  "rank_three,B=1,T=73,H=1,K=64,V=64,cu=0/3/70/73",
  "rank_filled,B=1,T=40,H=1,K=64,V=64,cu=0/3/40",
  "rank_filled_sum,B=1,T=40,H=1,K=64,V=64",
  "precond_key_ranks,B=1,T=73,H=1,K=64,V=64,cu=0/3/70/73",
  -- what is a token late
  "trapezoidal_gla,B=1,T=130,H=1,K=64,V=64,cu=0/3/70/130",
  "trapezoid_key_ranks,B=2,T=70,H=1,K=64,V=64",
  "three_taps,B=1,T=73,H=1,K=64,V=64,cu=0/1/3/70/73",
  "late_values,B=1,T=73,H=1,K=64,V=64,cu=0/2/67/73",
  "band_of_three,B=1,T=66,H=1,K=64,V=64,cu=0/1/66",
  -- angles that a walk carries, of a constant, of tokens; beside delays
  "retnet,B=1,T=130,H=1,K=64,V=64,cu=0/3/70/130",
  "deltanet_rope,B=1,T=70,H=1,K=32,V=64,states=1",
  "mamba3,B=1,T=70,H=1,K=64,V=32,typed=1",
  "precond_mamba3,B=1,T=70,H=1,K=64,V=64,cu=0/3/70",
  -- larger than what the model lets a kernel hold: cut further, a state that
  -- nobody multiplies found where it is kept
  "gated_deltanet,B=1,T=70,H=1,K=192,V=192",
  "gated_deltanet,B=1,T=70,H=1,K=256,V=256",
  -- slices that are no whole piece of a tile: kept, and stored, by lanes
  "deltanet,B=1,T=73,H=1,K=256,V=96,cu=0/3/70/73",
  -- long programs, their columns in parts
  "precond_mamba3,B=1,T=70,H=1,K=128,V=128",
  -- states that stand in each other: scores that are scanned, both ways
  "momentum_deltanet,B=1,T=73,H=1,K=64,V=64,cu=0/3/70/73",
  "momentum_deltanet,B=1,T=70,H=1,K=128,V=128,typed=1",
  "heavy_ball,B=1,T=73,H=1,K=64,V=64,cu=0/3/70/73",
  -- a lower state's read is a sign: pairs that are kept a row late
  "read_sign,B=1,T=73,H=1,K=64,V=64,L=64,cu=0/3/70/73",
  -- running maxima of each entry, whose chunks end anywhere
  "largest,B=1,T=150,H=2,V=128,cu=0/3/70/150",
  "largest,B=2,T=100,H=1,V=64,states=1",
  -- kernels over all chunks in two, as they are too large
  "dplr_plain,B=1,T=70,H=1,K=128,V=128",
  -- two states that turn into each other
  "oscillator,B=1,T=130,H=2,K=64,V=64",
  "oscillator,B=1,T=73,H=1,HV=2,K=64,V=32,cu=0/3/70/73",
  "oscillator,B=1,T=70,H=1,K=32,V=64,states=1",
  "oscillators,B=1,T=70,H=1,K=64,V=64,cu=0/3/70",
  "s4d,B=1,T=130,H=1,K=64,V=64",
  -- two states that do not need one another, and walks of their own
  "gsa,B=1,T=70,H=1,K=128,V=128",
  "abc,B=1,T=70,H=1,K=192,V=64",
  -- exp of quotients, of scores, that float64 holds and float32 does not: what
  -- divides them by their sum has no need of them
  "abc,B=1,T=70,H=1,K=128,V=128,M=64",
  "abc,B=1,T=70,H=1,K=128,V=128,M=64,loud=8",
  "gsa,B=1,T=70,H=1,K=128,V=128,M=64,dtype=float16,loud=8",
  -- a vector over an axis of 32: no lane looks behind it
  "kda,B=2,T=70,H=1,K=32,V=32,typed=1",
  -- no multiples of what products have: zeros behind the keys and values, of
  -- what programs make of them, too
  "gla,B=1,T=70,H=1,K=72,V=24,chunk=32,cu=0/3/35/70",
  "kda,B=2,T=70,H=1,HV=2,K=40,V=72,typed=1",
  -- tiles of a walk whose states are rows in two rings, and what is made of
  -- the second one's waits
  "dplr,B=1,T=200,H=1,K=128,V=128,typed=2",
  -- a gate of values, in float32, of a walk whose states are rows
  "gdn2,B=2,T=200,H=1,K=128,V=128,typed=2",
  "gdn2,B=1,T=70,H=1,HV=2,K=40,V=72,cu=0/3/20/70,typed=2",
  -- pairs of keys, whose rows no copy moves
  "deltanet_rope,B=1,T=70,H=1,K=72,V=40,states=1",
  -- rows of tensors that are no whole 16 bytes, and odd ones
  "linear,B=1,T=70,H=1,K=1,V=3",
  "gla,B=1,T=70,H=2,K=20,V=36,cu=0/5/5/70",
  "gated_deltanet,B=1,T=70,H=1,HV=2,K=33,V=21,typed=1",
  "kda,B=1,T=70,H=2,K=47,V=100,dtype=float16",
  "mlstm,B=1,T=70,H=1,K=36,V=7,dtype=float32",
  "rwkv7,B=1,T=70,H=1,K=33,V=33,states=1",
  "mamba3,B=1,T=70,H=1,K=36,V=21",
  -- pairs of an odd number of keys, of which the last has no other: as columns,
  -- as rows of a state, as a vector over them
  "retnet,B=1,T=73,H=1,K=33,V=21,cu=0/3/70/73",
  "deltanet_rope,B=1,T=70,H=2,K=47,V=20,states=1",
  "mamba3,B=1,T=70,H=1,K=33,V=21,typed=1",
  "mamba3_mimo,B=1,T=40,H=1,K=33,V=21,seed=2",
  "precond_mamba3,B=1,T=70,H=1,K=17,V=64,chunk=32,cu=0/3/70",
  "deltaproduct,B=1,T=70,H=1,K=35,V=20",
  -- tiles of float32, products as good; a state's last rows are few
  "simple_gla,B=1,T=70,H=2,K=64,V=64,dtype=float32",
  "simple_gla,B=1,T=70,H=1,K=96,V=40,dtype=float32",
  "kda,B=1,T=70,H=1,K=64,V=64,dtype=float32,chunk=32",
  "precond_gdn,B=1,T=70,H=1,K=64,V=64,dtype=float32",
  -- float16 with exponentials: tiles of float32, or divided by their sum
  "lightnet,B=1,T=130,H=1,HV=2,K=64,V=64,dtype=float16,cu=0/3/70/130",
  "gsa,B=1,T=130,H=1,K=64,V=64,dtype=float16",
  "abc,B=1,T=70,H=1,K=64,V=64,dtype=float16,chunk=32",
  -- chunks of 32 tokens
  "simple_gla,B=1,T=70,H=1,HV=2,K=128,V=64,chunk=32,typed=1",
  "gla,B=1,T=70,H=1,K=64,V=64,chunk=32,states=1",
  "gated_deltanet,B=1,T=70,H=1,K=64,V=64,chunk=32,cu=0/3/35/70",
  "precond_gdn,B=1,T=70,H=1,K=64,V=64,chunk=32,states=1",
  "mamba3,B=1,T=70,H=1,K=64,V=32,chunk=32,cu=0/3/36/70",
}

local long <const> = {
  "gated_deltanet,B=1,T=400,H=1,HV=2,K=64,V=64",
  -- as many chunks each: found without a table
  "gated_deltanet,B=2,T=627,H=1,HV=3,K=32,V=32",
  "kda,B=2,T=390,H=1,K=32,V=32,typed=1",
  "gated_deltanet,B=1,T=400,H=1,K=33,V=21,typed=1",
  "deltanet,B=1,T=500,H=1,K=32,V=32,cu=0/5/5/490/500",
  "rwkv7,B=1,T=384,H=1,K=64,V=64,states=1",
  "lightning,B=1,T=400,H=1,K=32,V=32,states=1",
  "comba,B=1,T=390,H=1,K=32,V=32,dtype=float32",
  "mimo_deltanet,B=1,T=400,H=1,K=32,V=32,typed=1",
  -- what shows transitions lies behind the parts of a state
  "rank_keys,B=1,T=400,H=1,K=32,V=32",
  -- entries that go on by themselves
  "gla,B=1,T=400,H=1,K=32,V=64,typed=1",
  "linear,B=1,T=400,H=1,K=64,V=32,cu=0/5/5/390/400",
  -- not square: not cut
  "gated_deltanet,B=1,T=400,H=1,K=32,V=64,typed=1",
}

-- "NAME,K=64,cu=0/3/70": the name, and the rest by name.
local function read(text)
  local name = text:match "^[%w_]+"
  local at = { seed = 1, dtype = "bfloat16" }
  for key, x in text:gmatch ",(%a+)=([%w/]+)" do
    if key == "cu" then
      at.cu_seqlens = {}
      for n in x:gmatch "%d+" do
        table.insert(at.cu_seqlens, math.tointeger(n))
      end
    else
      at[key] = tonumber(x) or x
    end
  end
  return name, at
end

-- Gates sum over a whole row of keys or values.
local GATES <const> = { log_decay = true, unit = true, positive = true }

local function limit_of(v, dtype, what)
  local fine = dtype == "float16" and 0.25 or dtype == "float32" and 2.5e-3 or 1
  for _, input in ipairs(v.inputs) do
    if what == "d_" .. input.name and GATES[input.domain] then
      return 2e-2 * fine
    end
  end
  return fine * (what:find "^d_" and 8e-3
                 or suite.ROUNDS_MORE[v.name] and 6e-3 or 4e-3)
end

local function check_typed(text, v, at, chunk, wide)
  local ends <const> = at.cu_seqlens
  at.cu_seqlens = nil
  local host = suite.typed(v, v:random(at), at.dtype, wide)
  host.chunk, host.cu_seqlens = chunk, ends
  host.dy = flin.randn(v:reference(host).shape, { seed = 9 }):to(at.dtype)
  suite.check_gradients(text, v, host, function (input)
    return limit_of(v, at.dtype, "d_" .. input)
  end)
end

-- States of 16 bits, to begin with and as adjoints.
local function check_states(text, v, at, chunk)
  local host = v:random(at)
  local y, left = v:reference(host)
  local function near(what, a, b)
    local off = suite.relative(a, b)
    expect(off <= limit_of(v, at.dtype, what), "%s: %s is off by %.1e", text,
           what, off)
  end
  host.cu_seqlens, host.chunk = at.cu_seqlens, chunk
  host.initial_state, host.dstate = {}, {}
  for name, x in pairs(left) do
    host.initial_state[name] = x:to(at.dtype)
    host.dstate[name] = (0.5 * x):to(at.dtype)
  end
  local there = suite.on_gpu(host)
  there.initial_state = suite.on_gpu(host.initial_state)
  there.dstate = suite.on_gpu(host.dstate)
  host.dy = y:to(at.dtype)
  there.dy = host.dy:to "cuda"
  local want, got = v:reference_backward(host), v:backward(there)
  for _, input in ipairs(v.inputs) do
    near("d_" .. input.name, got[input.name], want[input.name])
  end
  for name, x in pairs(got.initial_state) do
    near("d_initial_state", x, want.initial_state[name])
  end
end

-- Is it the gradient of an input without tokens?
local function is_constant(v, what)
  for _, input in ipairs(v.inputs) do
    if what == "d_" .. input.name then
      return not (input.axes .. " "):find "^t "
    end
  end
  return false
end

local function check(text)
  local name, at = read(text)
  local v = more[name] and more[name]() or flin.stdlib[name]
  if at.scaled then
    at.scaled = nil
    v = v:map { q = function (q)
      return q * flin.rsqrt(flin.size(q, "k"))
    end }
  end
  if at.loud then
    local by <const> = at.loud
    at.loud = nil
    v = v:map { q = function (q) return by * q end }
  end
  local how = at.typed and check_typed or at.states and check_states
  if how then
    local chunk <const>, wide <const> = at.chunk, at.typed == 2
    at.typed, at.states, at.chunk = nil, nil, nil
    return how(text, v, at, chunk, wide)
  end
  at.backend = "cuda"
  for what, off in pairs(v:check(at)) do
    if type(off) == "number" and what ~= "worst" then
      local limit = limit_of(v, at.dtype, what)
      if off > limit and is_constant(v, what) then
        off = suite.off_over_draws(v, at, what:sub(#"d_" + 1))
      end
      limit = off <= limit and limit or suite.amplified(v, at, what)
      expect(off <= limit, "%s: %s is off by %.1e", text, what, off)
    end
  end
end

-- Forward from states in float32: the last of three sequences ends behind T
-- tokens.
local function check_forward(text, T)
  local name = text:match "^[%w_]+"
  local v = more[name] and more[name]() or flin.stdlib[name]
  local at = { B = 1, T = T, H = 2, K = 64, V = 64, seed = 3,
               dtype = "bfloat16" }
  for key, n in text:gmatch ",(%u+)=(%d+)" do
    at[key] = tonumber(n)
  end
  local x = v:random(at)
  x.chunk = tonumber(text:match ",chunk=(%d+)")
  x.cu_seqlens = { 0, 3, 33, T }
  x.initial_state = {}
  for state, left in pairs(select(2, v:reference(x))) do
    x.initial_state[state] = left:to "float32"
  end
  local y, want = v:reference(x)
  local there = suite.on_gpu(x)
  there.cu_seqlens = x.cu_seqlens
  there.initial_state = suite.on_gpu(x.initial_state)
  local got, left = v:forward(there)
  want.y, left.y = y, got
  for what, is in pairs(want) do
    local off = suite.relative(left[what], is)
    expect(off <= limit_of(v, at.dtype, what), "%s: %s is off by %.1e", name,
           what, off)
  end
end

-- How many programs there were, of those that a schedule printed.
local function programs()
  local counted = io.open(os.getenv "FAKE_SOURCES" or "/dev/null")
  local n = counted and #counted:read "a" or 0
  if counted then counted:close() end
  return n
end

-- Whether a call of so many tokens of a head is cut.
local function is_cut(v, T)
  local bench = v:bench { T = T, H = 1, K = 32, V = 32, dtype = "bfloat16",
                          backend = "cuda", seconds = 0 }
  local cut = {}
  for _, kernel in ipairs(bench.kernels) do
    for _, part in ipairs(kernel.parts) do
      cut[kernel.call] = cut[kernel.call] or part.name:find "^flin_carry" ~= nil
    end
  end
  return cut["forward, chunks"], cut["forward + backward"]
end

-- Kernels that walk so, of a call both ways in segments.
local function count_walks(v, way)
  local bench = v:bench { T = 300, H = 1, K = 64, V = 64, dtype = "bfloat16",
                          backend = "cuda", seconds = 0 }
  local found, n = {}, 0
  for _, kernel in ipairs(bench.kernels) do
    for _, part in ipairs(kernel.parts) do
      if kernel.call == "forward + backward" and part.name:find(way)
         and not found[part.name] then
        found[part.name] = true
        n = n + 1
      end
    end
  end
  return n
end

-- What tokens do to a state, on the GPU as on the host.
local function check_summary(name)
  local v = flin.stdlib[name]
  local x = v:random { T = 9, H = 2, K = 64, V = 32, dtype = "bfloat16" }
  local own, transition = v:summary(x)
  local own_there, transition_there = v:summary(suite.on_gpu(x))
  expect(suite.relative(own_there.S, own.S) <= 6e-3, "%s: own", name)
  expect(suite.relative(transition_there.S, transition.S) <= 6e-3,
         "%s: its transition", name)
end

local function check_cut()
  local v = flin.stdlib.deltanet
  local forward, both = is_cut(v, 300)
  expect(forward and both, "deltanet: 300 tokens are not cut")
  forward, both = is_cut(v, 60)
  expect(not forward and not both, "deltanet: a chunk is cut")
  forward, both = is_cut(flin.stdlib.simple_gla, 300)
  expect(forward and both, "simple_gla: 300 tokens are not cut, as asked")
  for _, way in ipairs { "_forward$", "_reverse$" } do
    expect(count_walks(flin.stdlib.kda, way) == 2,
           "kda: what segments leave by themselves has no walk %s of its own",
           way)
  end
end

-- A chunk and some, both ways, of sizes that fit and that do not.
local function sweep(only)
  local list = {}
  for _, name in ipairs(only and { only } or flin.stdlib_names) do
    for _, size in ipairs { "K=32,V=32", "K=96,V=96", "K=192,V=192",
                            "K=256,V=256", "K=32,V=256", "K=192,V=64" } do
      list[#list + 1] = name .. ",B=1,T=70,H=1," .. size
    end
  end
  return list
end

local function some()
  local list = {}
  for i = 1, #cases, 5 do
    list[#list + 1] = cases[i]
  end
  return list
end

-- Kernels too large for 99 KB, cut until they have room; of chunks of 32 tokens
-- products that kernels leave by lanes for others.
local small <const> = {
  "simple_gla,B=1,T=70,H=1,K=128,V=256,chunk=32",
  "gla,B=1,T=73,H=1,K=256,V=256,cu=0/3/70/73",
  "gated_deltanet,B=1,T=70,H=1,K=256,V=256",
  "gsa,B=1,T=70,H=1,K=128,V=128",
  -- gates' sums of which are added up again by each kernel
  "gated_oja,B=1,T=70,H=1,K=256,V=256",
  "dplr,B=1,T=70,H=1,K=256,V=256",
}

-- Kernels that are printed so have lean turns, and these are taken: the second
-- part of the sequence begins behind them.
local shared <const> = { "simple_gla", "mlstm", "gla", "trapezoidal_gla",
                         "scaled_result,K=128,V=128",
                         -- packed states are a factor of lean products
                         "gated_deltanet,K=128,V=128", "kda,K=128,V=128",
                         -- of what makes two tiles these need one
                         "lightning,K=128,V=128", "retnet,K=128,V=128" }
local parts <const> = ... == "parts"

local are_long <const> = ... == "long"
local cut <const> = ... == "cut"
-- Few heads with wide values: a block has half of them, and a vector that a
-- state's rows alone have is carried ahead of the state, by both.
local sliced <const> = { "kda", "precond_gdn", "precond_kda", "mamba3",
                         "deltaproduct", "mlstm", "comba" }

local function with_slices(names)
  local all = { table.unpack(names) }
  for _, name in ipairs(sliced) do
    all[#all + 1] = name .. ",K=128,V=128"
  end
  all[#all + 1] = "kda,K=72,V=40"
  all[#all + 1] = "gla,K=20,V=33"
  all[#all + 1] = "mamba3,K=33,V=21"
  return all
end

local forward <const> = cut or parts or ... == "forward"
local sweeps <const> = ... == "sweep"
for _, text in ipairs(are_long and long or sweeps and sweep(select(2, ...))
                      or ... == "some" and some()
                      or parts and shared
                      or ... == "small" and small
                      or forward and (select(2, ...) and { select(2, ...) }
                                      or with_slices(flin.stdlib_names))
                      or ... and { ... } or cases) do
  local before = programs()
  local ok, why_not = pcall(forward and check_forward or check, text,
                            parts and 8300 or cut and 330 or 130)
  expect(ok, "%s: %s", text, why_not)
  -- what is not cut has the kernels of a shorter call, which may be there
  expect(sweeps or cut or parts or programs() > before
         or not os.getenv "FAKE_SOURCES",
         "%s: no kernel came from a schedule", text)
end
if are_long then
  check_cut()
  check_summary "gla"
  check_summary "kda"
end
suite.finish()
