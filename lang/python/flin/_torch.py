"""The door for PyTorch tensors: the current stream, autograd, and (PyTorch
2.4 on) the operators that torch.compile sees."""
import itertools
import math
import operator
import sys

import torch
from torch.autograd import forward_ad
from . import _c, _dtensor, _state
from ._calls import (ALIGNMENT, SAVING, Caller, Request, overlaps,
                     wrong_kind)
from ._variant import DOORS

CODE = {torch.float32: _c.F32, torch.bfloat16: _c.BF16, torch.float16: _c.F16,
        torch.float64: _c.F64, torch.int32: _c.I32, torch.int64: _c.I64}
DTYPE = {code: dtype for dtype, code in CODE.items()}
this = sys.modules[__name__]
DOORS[torch.Tensor] = DOORS[torch.nn.Parameter] = this


# ---- what _calls.py asks of a door ----


def signature(tensors):
    found = []
    for t in tensors:
        found += t.dtype, t.shape, t.stride(), t.device, t.is_neg()
    return found


def describe(name, t):
    return CODE[t.dtype], tuple(t.shape), t.stride()


def check_device(name, t, first, like):
    if t.device != like.device:
        raise _c.Error(f"{name} is on {t.device}, but {first} on "
                       f"{like.device}\n  help: tensors do not move unasked: "
                       f"{name}.to(\"{like.device}\")")


def check(name, t, first, like):
    if not isinstance(t, torch.Tensor):
        raise wrong_kind(name, t, first, "a torch.Tensor",
                         "torch.full([B, T, H], {})")
    if t.dtype not in CODE:
        raise _c.Error(f"{name} is {t.dtype}: float32, bfloat16, float16 or "
                       "float64 is wanted")
    if t.layout != torch.strided or t.is_nested:
        raise _c.Error(f"{name} is {t.layout}: a dense tensor is wanted")
    check_device(name, t, first, like)
    if t.device.type not in ("cpu", "cuda"):
        raise _c.Error(f"{name} is on {t.device}: flin runs on cpu and cuda")
    if t.device.type == "cuda" and t.dtype == torch.float64:
        raise _c.Error(f"{name} is float64 on {t.device}: float64 is computed "
                       "on the CPU alone\n  help: float32, or .cpu()")


pointer = torch.Tensor.data_ptr
empty_like = torch.empty_like
keeps_order = True


def is_plain(t):
    """Not the negative of what its memory holds, as c.conj().imag is."""
    return not t.is_neg()


def contiguous(t):
    return t.resolve_neg().contiguous()


def empty(shape, dtype, like):
    return like.new_empty(shape, dtype=DTYPE[dtype])


# PyTorch 2.0 on.
storage_of = getattr(torch.Tensor, "untyped_storage", None) \
    or torch.Tensor._storage


def runs(tensors):
    """Those of one dtype that lie one behind another in one storage."""
    order = sorted(range(len(tensors)), key=lambda i: pointer(tensors[i]))
    found, end = [], None
    for i in order:
        t = tensors[i]
        at = t.dtype, storage_of(t).data_ptr(), pointer(t)
        if at == end:
            found[-1].append(i)
        else:
            found.append([i])
        end = *at[:2], at[2] + t.numel() * t.element_size()
    return [run for run in found if len(run) > 1]


def row(parts, dtype, like):
    """New tensors in one memory, one behind another."""
    sizes = [math.prod(shape) for shape, _ in parts]
    all = like.new_empty(sum(sizes), dtype=DTYPE[dtype])
    return [all.as_strided(shape, strides, at) for (shape, strides), at
            in zip(parts, itertools.accumulate(sizes, initial=0))]


def space(size, like):
    """From PyTorch's allocator: safe on its streams, on a GPU aligned."""
    if like.is_cuda:
        return like.new_empty(size, dtype=torch.uint8)
    raw = like.new_empty(size + ALIGNMENT - 1, dtype=torch.uint8)
    return raw[-raw.data_ptr() % ALIGNMENT:][:size]


if hasattr(torch._C, "_cuda_getCurrentRawStream"):
    # As torch.cuda's, past what starts CUDA: there are tensors on it.
    raw_stream = torch._C._cuda_getCurrentRawStream
    current_device = torch._C._cuda_getDevice
else:
    current_device = torch.cuda.current_device

    def raw_stream(index):
        return torch.cuda.current_stream(index).cuda_stream


def ends(cu, like):
    try:
        cu = torch.as_tensor(cu)
    except (TypeError, ValueError, RuntimeError):
        raise _c.ArgumentError(f"cu_seqlens is {cu!r}: the ends of sequences "
                               "are wanted, as integers") from None
    if cu.dtype not in (torch.int64, torch.int32) or cu.dim() != 1:
        raise _c.Error(f"cu_seqlens is {cu.dtype} with {cu.dim()} dimensions: "
                       "int64 or int32 with 1 is wanted")
    if cu.device.type != "cpu" and cu.device != like.device:
        raise _c.Error(f"cu_seqlens is on {cu.device}, but the tensors are on "
                       f"{like.device}")
    return cu.to(torch.int64).contiguous()


def index(i, like):
    """Of the host's numbers a copy, on the device; never waited for."""
    if isinstance(i, torch.Tensor):
        return i
    try:
        return torch.as_tensor(i, dtype=torch.int64, device=like.device)
    except (TypeError, ValueError, RuntimeError):
        raise _c.ArgumentError(f"state_index is {i!r}: entries of a pool are "
                               "wanted, as integers") from None


def pools(tensors):
    if is_spread(tensors) or is_watched(tensors):
        raise _c.Error("state_index and verify are for eager calls and CUDA "
                       "graphs, of tensors on one device")
    if torch.is_grad_enabled() and wants_grad(tensors):
        raise _c.Error("state_index and verify have no gradients\n"
                       "  help: with torch.no_grad():")


def written(t):
    if not t.is_inference():
        increment_version(t)


def place(call, like, cu):
    if like.is_cuda:
        call.backend = b"cuda"
        call.stream = raw_stream(like.device.index)
    call.cu_seqlens = call.cu_seqlens_device = None
    if cu is not None and cu.is_cuda:
        call.cu_seqlens_device = cu.data_ptr()
    elif cu is not None:
        call.cu_seqlens = cu.data_ptr()


def is_writable(t):
    return not t.requires_grad and not overlaps(t.shape, t.stride())


def _touch(t):
    """What writes nothing, but counts as writing."""
    t.detach()[:0].zero_()


# PyTorch 2.0 on.
increment_version = getattr(torch.autograd.graph, "increment_version", _touch)
written = increment_version
PLAIN = {torch.Tensor, torch.nn.Parameter}
needs_grad = operator.attrgetter("requires_grad")
is_recording = torch.is_grad_enabled


def refuse_dual(tensors):
    if forward_ad._current_level < 0:
        return
    for t in tensors:
        if isinstance(t, torch.Tensor) \
                and forward_ad.unpack_dual(t).tangent is not None:
            raise _c.Error("forward-mode derivatives do not see through "
                           "flin\n  help: torch.autograd.grad")


if hasattr(torch.library, "custom_op"):
    from torch._C import _is_tracing as is_tracing
    from torch._C._functorch import maybe_current_level
    from torch.compiler import is_compiling

    def is_watched(tensors):
        """Whether something follows the operators that are called: compilers,
        tracers, tensors of other classes or without data."""
        if is_compiling():
            return True
        if maybe_current_level() is not None:
            raise _c.Error("torch.func and vmap do not see through flin\n"
                           "  help: torch.autograd.grad; a batch dimension")
        refuse_dual(tensors)
        return is_tracing() or tensors[0].is_meta or (
            not PLAIN.issuperset(map(type, tensors))
            and all(isinstance(t, torch.Tensor) and not t.is_nested
                    for t in tensors))
else:
    def is_watched(tensors):
        refuse_dual(tensors)
        if torch._C._get_tracing_state():
            raise _c.Error("torch.jit.trace wants PyTorch 2.4 or later here")
        return False


# ---- calls ----


def run(variant, r, how=Caller.run):
    on = r.x[0].device
    if on.type != "cuda":       # others than the CPU are refused there
        return how(variant._caller(_state.cpu()), this, r)
    if on.index == current_device():
        return how(variant._caller(on), this, r)
    with torch.cuda.device(on):
        return how(variant._caller(on), this, r)


class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, variant, r, *tensors):
        ctx.set_materialize_grads(False)
        results = run(variant, r)
        ctx.save_for_backward(*tensors, r.saved)
        ctx.made = [(t.shape, t.dtype) for t in apart(variant, results)[0]]
        ctx.rest = (variant, len(r.x), r.cu, r.chunk, r.note, r.validate,
                    r.over)
        return tuple(results)

    @staticmethod
    def backward(ctx, *grads):
        want = ctx.needs_input_grad[2:]
        if all(d is None for d in grads):
            return (None, None) + (None,) * len(want)
        *tensors, saved = ctx.saved_tensors
        variant, n, cu, chunk, note, validate, over = ctx.rest
        dy, ds = apart(variant, grads)
        if tensors[0].is_cuda:          # workspace has no room for zeros
            dy = [torch.zeros(shape, dtype=dtype, device=tensors[0].device)
                  if d is None else d
                  for d, (shape, dtype) in zip(dy, ctx.made)]
        over = tuple(o and w for o, w in zip(over, want))
        into = sums(variant, tensors[:n], want)
        r = Request(_c.BACKWARD, tensors[:n], tensors[n:], cu, chunk, dy=dy,
                    ds=ds, want=want, note=note, validate=validate,
                    saved=as_left(saved, tensors[0]), into=into,
                    spend=saved is not None and is_last(),
                    over=over if any(over) else (), beside=variant.is_layer)
        found = run(variant, r)
        for t, o in zip(tensors, over):
            if o:
                increment_version(t)
        if any(over):
            found = [t.detach() for t in found]
        if into:
            found = added(tensors, into, found, want)
        if torch.is_grad_enabled():     # create_graph=True
            found = Last.apply(variant.name, found, *grads, *tensors)
        if all(want):
            return (None, None, *found)
        found = iter(found)
        return (None, None) + tuple(next(found) if w else None for w in want)


def _keeps_graph():
    return True


# PyTorch 2.5 on.
keeps_graph = getattr(torch._C._autograd,
                      "_get_current_graph_task_keep_graph", _keeps_graph)


def is_last():
    """Whether the way back that is on is the last through its graph."""
    return not keeps_graph()


def apart(variant, found):
    """What is of results, and what of states."""
    n = len(variant.outputs)
    return found[:n], found[n:]


def sums(variant, tensors, want):
    """For each input of a layer what its gradient is added to: the float32
    tensor that is the weight's `main_grad`, as training loops of micro-batches
    set it. () where there is none."""
    into = [getattr(t, "main_grad", None) if w else None
            for t, w in zip(tensors, want)]
    if all(t is None for t in into) or not variant.is_layer:
        return ()
    for a, t, w in zip(variant.inputs, into, want):
        if w and not a.timed and t is None:
            raise _c.Error(f"{variant.name}: weight {a.name} has no main_grad, "
                           "but others have\n  help: one for each, of float32")
    return [None if a.timed else t for a, t in zip(variant.inputs, into)]


def added(tensors, into, found, want):
    """The gradients without those that have been added."""
    left = iter(found)
    kept = [next(left) if w else None for w in want]
    for i, t in enumerate(into):
        if t is not None:
            increment_version(t)
            tensors[i].grad_added_to_main_grad = True
            kept[i] = None
    return [g for g, w in zip(kept, want) if w]


# Past the wrapper in Python that looks for torch.func: is_watched has.
APPLY = super(torch.autograd.Function, Function).apply


class Last(torch.autograd.Function):
    """Results that have no gradients, and say so when they are asked for."""
    @staticmethod
    def forward(ctx, name, found, *tensors):
        ctx.name = name
        return tuple(found)

    @staticmethod
    def backward(ctx, *grads):
        raise no_second(ctx.name)


def no_second(name):
    return _c.Error(f"{name}: gradients of gradients are not supported: flin "
                    "derives the first ones alone\n  help: differences of "
                    "first gradients, in float64")


def as_left(saved, like):
    """As forward left it, where hooks on saved tensors have moved it."""
    if saved is None:
        return None
    if saved.dtype != torch.uint8 or saved.device != like.device:
        raise _c.Error("backward: what forward has saved comes back from a "
                       f"hook as {saved.dtype} on {saved.device}: torch.uint8 "
                       f"on {like.device} is wanted")
    if saved.data_ptr() % ALIGNMENT == 0 and saved.is_contiguous():
        return saved
    return space(saved.numel(), saved).copy_(saved)


def wants_grad(tensors):
    try:
        return True in map(needs_grad, tensors)
    except AttributeError:      # not a tensor: refused later, by name
        return False


def is_spread(tensors):
    """Whether a tensor lies over the ranks of a mesh."""
    return not PLAIN.issuperset(map(type, tensors)) and any(
        isinstance(t, _dtensor.class_of()) for t in tensors)


def call(variant, x, s0, cu, chunk, scale, norm, final, validate, over=()):
    """y and the final states; differentiable where anything asks for it. over:
    for each input, whether its gradient is written over it."""
    states = [s for s in s0 if s is not None]
    if is_spread(x + states):
        x, s0, spread = _dtensor.own_parts(variant, x, s0)
        return spread(*call(variant, x, s0, cu, chunk, scale, norm, final,
                            validate, over))
    if is_watched(x + states):
        if any(over):
            raise _c.Error("inplace is for eager calls")
        if validate > 0:
            raise _c.Error("validate is for eager calls\n  help: FLIN_CHECK=1 "
                           "in the environment validates in compiled ones")
        return torch.ops.flin.forward(
            variant.key, x, states,
            sum((s is not None) << i for i, s in enumerate(s0)), cu, chunk,
            scale, norm, final)
    variant = variant._through(scale, norm, x)
    r = Request(_c.FORWARD, x, s0, cu, chunk, final, validate=validate,
                over=over)
    if torch.is_grad_enabled() and wants_grad(x + states):
        r.mode = SAVING
        return APPLY(variant, r, *x, *s0)
    return run(variant, r)


def step(variant, x, s0, scale, norm, inplace, validate):
    """y and the new states."""
    if is_spread(x + [s for s in s0 if s is not None]):
        x, s0, spread = _dtensor.own_parts(variant, x, s0)
        return spread(*step(variant, x, s0, scale, norm, inplace, validate))
    if is_watched(x + [s for s in s0 if s is not None]):
        y, states = apart(variant, call(variant, x, s0, None, 0, scale, norm,
                                        True, validate))
    elif inplace and not all(map(is_plain, s0)):
        y, states = apart(variant, step(variant, x, s0, scale, norm, False,
                                        validate))
    else:
        results = run(variant._through(scale, norm, x),
                      Request(_c.STEP, x, s0, final=True, inplace=inplace,
                              validate=validate))
        for s in s0 if inplace else ():
            if not s.is_inference():    # else autograd would not see it
                increment_version(s)
        return results
    if inplace:
        states = [old.copy_(new) for old, new in zip(s0, states)]
    return [*y, *states]


if hasattr(torch.library, "custom_op"):
    from . import _operators    # noqa: F401
