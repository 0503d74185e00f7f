/* inplace.c -- states whose memory is the same before and after a call. What
 * one block or kernel stores there another may still have to read: all read a
 * copy of a state, unless each of its numbers is read and stored by one block
 * alone, by the same threads of it.
 */
#include "inplace.h"

/* Those of the kernels that run that have to do with a state. */
typedef struct Users {
    const Graph *g;
    const Call *call;
    int state, all;
    bool read, shared;                  /* shared: by blocks */
} Users;

static bool has_arg(const CudaKernel *k, CudaArgKind kind, int state)
{
    for (int i = 0; i < k->ntensors; i++)
        if (k->tensor[i].kind == kind && k->tensor[i].index == state)
            return true;
    return false;
}

/* Whether one role may have left its end before another looks it up. */
static bool is_looked_up(const CudaKernel *k, int state)
{
    bool any = false;
    for (int i = 0; i < k->ntensors; i++)
        any |= k->looked_up[i] && k->tensor[i].index == state;
    return any;
}

/* Blocks of a head have slices of an axis: what a state that lacks it holds is
 * read by all of them. */
static bool is_shared(const Graph *g, const CudaKernel *k, int state)
{
    return k->blocks > 1 && !(g->st[state].axes & AXIS(k->slice_axis));
}

/* Of the module's kernels those that belong to the plan's from .. to - 1. */
static void count_users(Users *u, const Build *b, int from, int to)
{
    for (int i = 0; i < b->m->nkernels; i++) {
        const CudaKernel *k = &b->m->kernel[i];
        bool reads = has_arg(k, ARG_STATE, u->state);
        if (k->of < from || k->of >= to)
            continue;
        u->all += reads || has_arg(k, ARG_NEXT, u->state);
        u->read |= reads;
        u->shared |= reads && (k->walk == CUDA_CHUNKS
                               || is_shared(u->g, k, u->state)
                               || is_looked_up(k, u->state)
                               || may_split(k, u->call));
    }
}

static bool is_own(const Running *r, const Call *call, int state)
{
    Users u = { .g = r->p->g, .call = call, .state = state };
    int to = call->to ? call->to : r->p->nkernels;
    count_users(&u, r->b, call->from, to);
    return !u.read || (u.all == 1 && !u.shared);
}

/* Where no addresses are known as yet, of a call that goes forward alone, they
 * may be the same. Where a twin starts, its state's end may be stored. */
static bool needs_copy(const Running *r, const Call *call, int state)
{
    int of = r->p->g->st[state].twin_of;
    const View *v = &call->s0[state], *w = &call->s1[of ? of - 1 : state];
    bool joint = r->p->split > 0 && r->p->split < r->p->nkernels;
    return v->data == w->data && (v->data || (v->sd[0] && !joint))
        && (of || !is_own(r, call, state));
}

static void extend(int64_t *low, int64_t *high, int64_t stride, int64_t n)
{
    *low += stride < 0 ? stride * (n - 1) : 0;
    *high += stride > 0 ? stride * (n - 1) : 0;
}

/* A row for each sequence; all in one where they mingle. */
static DeviceRows rows_of_state(const Graph *g, const Call *call, int state)
{
    enum { PIECE = 16 };
    const State *st = &g->st[state];
    const View *v = &call->s0[state];
    int heads = v->heads ? v->heads : call->heads;
    int64_t size = dtype_size(v->dtype);
    int64_t low = 0, high = 1;          /* elements of a sequence */
    extend(&low, &high, v->sh, heads);
    for (int d = 0; d < st->rank; d++)
        extend(&low, &high, v->sd[d], g->axis[st->order[d]].size);
    bool mingled = call->nseq > 1 && v->sb < high - low;
    if (mingled)
        extend(&low, &high, v->sb, call->nseq);
    DeviceRows r = { .rows = mingled ? 1 : (size_t)call->nseq };
    r.from = (DevicePtr)(uintptr_t)v->data + (DevicePtr)(low * size);
    r.width = (size_t)((high - low) * size);
    r.pitch = r.rows == 1 ? r.width : (size_t)(v->sb * size);
    r.to_pitch = (r.width + PIECE - 1) / PIECE * PIECE;
    return r;
}

static int64_t bytes_of(const DeviceRows *r)
{
    enum { ALIGN = 256 };
    return (int64_t)((r->rows * r->to_pitch + ALIGN - 1) / ALIGN * ALIGN);
}

int64_t inplace_bytes(const Running *r, const Call *call)
{
    int64_t n = 0;
    for (int i = 0; i < r->p->g->nst && call->nseq; i++) {
        DeviceRows rows = rows_of_state(r->p->g, call, i);
        n += needs_copy(r, call, i) ? bytes_of(&rows) : 0;
    }
    return n;
}

int inplace_place(const Running *r, Call *call, DevicePtr to,
                  DeviceRows copy[MAX_STATES])
{
    int n = 0;
    for (int i = 0; i < r->p->g->nst && call->nseq; i++) {
        View *v = &call->s0[i];
        if (!v->data || !needs_copy(r, call, i))
            continue;
        copy[n] = rows_of_state(r->p->g, call, i);
        copy[n].to = to;
        v->data = (void *)(uintptr_t)(to + ((DevicePtr)(uintptr_t)v->data
                                            - copy[n].from));
        if (copy[n].rows > 1)
            v->sb = (int64_t)copy[n].to_pitch / dtype_size(v->dtype);
        to += (DevicePtr)bytes_of(&copy[n++]);
    }
    return n;
}
