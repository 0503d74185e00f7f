"""States in pools through PyTorch and NumPy: by index, in pieces, verified; and
the example's server, whose clients come and leave."""
import importlib.util
import os
import sys

from harness import check, close, end, flin, refused, same

if not importlib.util.find_spec("torch"):
    print("skip no PyTorch for", sys.executable)
    sys.exit()
import torch                                        # noqa: E402
import torch.nn.functional as F                     # noqa: E402

torch.set_num_threads(1)
torch.manual_seed(3)
gdn = flin.load("gated_deltanet")
B, T, H, D, P = 2, 5, 2, 8, 11


def inputs(B, T):
    q, k, v = torch.randn(3, B, T, H, D)
    return {"q": q, "k": F.normalize(k, dim=-1), "v": v,
            "g": -torch.rand(B, T, H), "beta": torch.rand(B, T, H)}


def part(x, first, last):
    return {name: t[:, first:last] for name, t in x.items()}


x, pool = inputs(B, T), torch.randn(P, H, D, D)
places = [7, 2]
o, s = gdn(**x, initial_state=pool[places], output_final_state=True)

# ---- by index ----

for kind in torch.int64, torch.int32:
    own = pool.clone()
    version = own._version
    o1, s1 = gdn(**x, initial_state=own, state_index=torch.tensor(
        places, dtype=kind))
    same(f"o, {kind}", o1, o)
    same(f"the pool, {kind}", own[places], s)
    check("the pool is the state", s1 is own)
    check("it counts as written", own._version > version)
    others = [p for p in range(P) if p not in places]
    same(f"other entries, {kind}", own[others], pool[others])

own = pool.clone()
y = [gdn.step(**part(x, t, t + 1), state=own, state_index=places)[0]
     for t in range(T)]
close("steps", torch.cat(y, 1), o, 1e-5)
close("steps: the pool", own[places], s, 1e-5)

own = pool.clone()
o1, _ = gdn(**x, initial_state=own, state_index=[7, -1])
same("a place that nobody has: o", o1[0], o[0])
same("a place that nobody has: the pool", own[7], s[0])
own[7] = pool[7]
same("a place that nobody has: other entries", own, pool)

own = pool.clone()
exact = {name: t.double() for name, t in x.items()}
o1, _ = gdn(**exact, initial_state=own, state_index=places)
close("float64", o1.float(), o, 1e-5)
close("float64: the pool", own[places], s, 1e-5)

own = pool.clone().numpy()
o1, s1 = gdn(**{name: t.numpy() for name, t in x.items()}, initial_state=own,
             state_index=places)
same("NumPy: o", o1, o.numpy())
check("NumPy: the pool", s1 is own)
same("NumPy: its entries", own[places], s.numpy())

# ---- in pieces, cut anywhere ----

whole = inputs(1, 97)
o, s = gdn(**whole, initial_state=pool[:1], output_final_state=True)
for cuts in (1, 2, 64, 96), (33, 34, 35), tuple(range(1, 97)):
    own, y, ends = pool.clone(), [], (0, *cuts, 97)
    for first, last in zip(ends, ends[1:]):
        y.append(gdn(**part(whole, first, last), initial_state=own,
                     state_index=[0])[0])
    close(f"{len(cuts) + 1} pieces", torch.cat(y, 1), o, 1e-5)
    close(f"{len(cuts) + 1} pieces: the state", own[:1], s, 1e-5)

# ---- tokens that may be taken back ----

start = pool[places]
o, behind = gdn.verify(**x, state=start)
check("a state behind each", behind.shape == (B, T, H, D, D))
for t in range(T):
    y, s = gdn(**part(x, 0, t + 1), initial_state=start,
               output_final_state=True)
    close(f"verified: o of token {t}", o[:, t], y[:, t], 1e-5)
    close(f"verified: the state behind token {t}", behind[:, t], s, 1e-5)
own = pool.clone()
index = torch.tensor([[7, 0, 1, 7, -1, 3], [2, 4, 5, 6, 8, 9]])
y, _ = gdn.verify(**x, state=own, state_index=index)
same("verified in a pool", y, o)
for b in range(B):
    for t in range(T):
        if index[b, t + 1] >= 0:
            same(f"its entry {index[b, t + 1]}", own[index[b, t + 1]],
                 behind[b, t])
same("an entry of nobody", own[10], pool[10])
accepted = index[0, 2], index[1, 4]             # two tokens, and four
y, _ = gdn.step(**part(x, 2, 3), state=own, state_index=[accepted[0], -1])
close("goes on from the second", y[0, 0], o[0, 2], 1e-5)

# ---- layers ----

cu = torch.tensor([0, 3, 10])
for module in (flin.nn.LinearAttention(8, "mamba3", num_heads=2),
               flin.nn.Layer("gated_deltanet", d=8, heads=2, k=4, v=6)):
    name = type(module).__name__
    h = torch.randn(2, 12, 8)
    packed = torch.cat([h[:1, :3], h[1:, :7]], 1)
    with torch.no_grad():               # angles begin at 0
        for p in module.parameters():
            p += 0.3 * torch.randn_like(p)

    def by_name(state):
        return state if isinstance(state, dict) else {"": state}

    with torch.no_grad():
        want = [module(h[i:i + 1, :n], use_cache=True)
                for i, n in enumerate((3, 7))]
        pools = {n: torch.randn(5, *t.shape[1:])
                 for n, t in by_name(want[0][1]).items()}
        for t in pools.values():
            t[[4, 1]] = 0
        before = {n: t.clone() for n, t in pools.items()}
        given = pools if isinstance(want[0][1], dict) else pools[""]
        y, left = module(packed, state=given, state_index=[4, 1],
                         cu_seqlens=cu)
        check(f"{name}: the pool is the state", left is given or all(
            by_name(left)[n] is t for n, t in pools.items()))
        close(f"{name}: packed", y, torch.cat([o for o, _ in want], 1), 1e-5)
        at, states = [3, 7], [s for _, s in want]
        for turn in range(3):           # a token each, by turns of places
            token = torch.stack([h[i, at[i]:at[i] + 1] for i in range(2)])
            y, _ = module(torch.cat([token, token[:1]]), state=given,
                          state_index=[4, 1, -1])
            for i in range(2):
                o, states[i] = module(token[i:i + 1], state=states[i],
                                      use_cache=True)
                close(f"{name}: token {at[i]} of {i}", y[i:i + 1], o, 1e-5)
                at[i] += 1
        for n, t in pools.items():
            for i, place in enumerate((4, 1)):
                close(f"{name}: state {n} of {i}", t[place],
                      by_name(states[i])[n][0], 1e-5)
            same(f"{name}: {n} of others", t[[0, 2, 3]], before[n][[0, 2, 3]])
    refused(f"{name}: gradients", flin.Error, "no gradients", module, h[:, :1],
            state=given, state_index=[4, 1])

# ---- what is refused ----

token = part(x, 0, 1)
refused("no pool", flin.Error, "not a pool", gdn.step, **token,
        state_index=places)
refused("behind the end", flin.Error, "has 11 states", gdn.step, **token,
        state=pool, state_index=[0, 11])
refused("twice", flin.Error, "for sequence 0 and for sequence 1", gdn.step,
        **token, state=pool, state_index=[3, 3])
refused("fractions", flin.Error, "state_index is float32", gdn.step, **token,
        state=pool, state_index=torch.tensor([0., 1.]))
refused("no numbers", flin.Error, "are wanted, as integers", gdn.step, **token,
        state=pool, state_index="ab")
refused("too few", flin.Error, "[2, 6] is wanted", gdn.verify, **x, state=pool,
        state_index=places)
refused("expanded", flin.Error, "not a pool", gdn.step, **token,
        state=pool[:1].expand(P, H, D, D), state_index=places)
learnt = dict(token, q=token["q"].clone().requires_grad_())
refused("gradients", flin.Error, "no gradients", gdn.step, **learnt,
        state=pool, state_index=places)
with torch.no_grad():
    gdn.step(**learnt, state=pool.clone(), state_index=places)

# ---- the example's server ----

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "../../examples"))
import batching                                     # noqa: E402


def run(device, prompts, most, leaves=()):
    """What each client hears; leaves: in which turn which one leaves."""
    server = batching.Server(batching.Model(device=device))
    clients = [server.submit(p, n) for p, n in zip(prompts, most)]
    turn, busy = 0, True
    while busy or not server.waiting.empty():
        for when, i in leaves:
            if when == turn:
                clients[i].leave()
        busy, turn = server.turn(), turn + 1
        check("no place is lost", len(server.active) + len(server.free)
              == batching.PLACES)
    return [c.all() for c in clients]


prompts = [bytes(range(i, i + 5 + 9 * i)) for i in range(7)]
most = [20, 3, 30, 8, 25, 12, 16]
for device in ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",):
    alone = [run(device, [p], [n])[0] for p, n in zip(prompts, most)]
    check(f"{device}: as many tokens as were asked for",
          [len(a) for a in alone] == most)
    check(f"{device}: together as alone", run(device, prompts, most) == alone)
    left = run(device, prompts, most, leaves=[(7, 0), (4, 2), (0, 5)])
    for i in 1, 3, 4, 6:
        check(f"{device}: client {i}, while others leave", left[i] == alone[i],
              f"{left[i]}, {alone[i]}")
    for i in 0, 2, 5:
        check(f"{device}: client {i} left", len(left[i]) < most[i]
              and left[i] == alone[i][:len(left[i])], left[i])
end()
