/* layer_beside.c -- programs over rows that do not wait for one another, as one
 * kernel: the convolutions of queries, keys and values, each way.
 *
 * Whether one waits is told by the layer's values alone, not by where these
 * lie: so that calls which compute nothing find the kernels that run.
 */
#include "../backend/cuda/rows.h"
#include "layer_gpu.h"

/* What is held, as it came; and places that wait to be dropped. */
typedef struct Held {
    int n, ndropped, most;
    const LayerPart *part[ROWS_BESIDE];
    RowsRun run[ROWS_BESIDE];
    RowsCall *call[ROWS_BESIDE + 1];
    void **dropped;
} Held;

static Held *held_of(Lay *k)
{
    if (!k->held)
        k->held = ctx_alloc(k->c, sizeof *k->held);
    return k->held;
}

RowsCall *held_call(Lay *k)
{
    Held *h = held_of(k);

    if (!h->call[h->n])
        h->call[h->n] = ctx_alloc(k->c, sizeof *h->call[h->n]);
    return h->call[h->n];
}

bool hold_place(Lay *k, void *at)
{
    Held *h = k->held;

    if (!h || !h->n)
        return false;
    if (h->ndropped == h->most) {
        int most = 2 * h->most + 16;
        h->dropped = ctx_grow(k->c, h->dropped,
                              (size_t)h->most * sizeof *h->dropped,
                              (size_t)most * sizeof *h->dropped);
        h->most = most;
    }
    h->dropped[h->ndropped++] = at;
    return true;
}

static bool reads(const LayerPart *p, Ref r)
{
    bool any = false;

    for (int i = 0; i < p->nin; i++)
        any = any || p->in[i] == r;
    return any;
}

/* Does it leave, or write over, what another part reads or leaves of r? */
static bool meets(const Lay *k, const LayerPart *p, bool backward, Ref r)
{
    return p->y == r || (backward && reads(p, r) && k->wanted[r]);
}

static bool meet(const Lay *k, const LayerPart *p, const LayerPart *q,
                 bool backward)
{
    bool any = meets(k, p, backward, q->y) || meets(k, q, backward, p->y);

    for (int i = 0; i < q->nin; i++)
        any = any || meets(k, p, backward, q->in[i]);
    for (int i = 0; i < p->nin; i++)
        any = any || meets(k, q, backward, p->in[i]);
    return any;
}

/* States of one that borrows them are another one's. */
static bool may_be_beside(const Lay *k, const Held *h, const LayerPart *part)
{
    bool may = rows_beside(h->run, h->n + 1);

    for (int i = 0; i < h->n; i++)
        may = may && !part->borrows && !h->part[i]->borrows
           && !meet(k, part, h->part[i], h->run[i].call->backward);
    return may;
}

void hold_rows(Lay *k, const LayerPart *part, struct Rows *p,
               const RowsCall *call)
{
    Held *h = held_of(k);
    RowsRun own = { p, call };

    if (h->n < ROWS_BESIDE)
        h->run[h->n] = own;
    if (h->n == ROWS_BESIDE || !may_be_beside(k, h, part)) {
        RowsCall *spare = h->call[0];
        int at = h->n;
        run_held(k);
        h->call[0] = h->call[at];       /* this one's */
        h->call[at] = spare;
    }
    h->part[h->n] = part;
    h->run[h->n++] = own;
}

void run_held(Lay *k)
{
    Held *h = k->held;
    int n = h ? h->n : 0;

    if (!n)
        return;
    h->n = 0;
    if (k->dry && k->makes == MAKES_WISHES)
        rows_wish(k->c, k->v->shared.gpu, h->run, n);
    else if (k->dry && k->makes == MAKES_ALL)
        rows_prepare(k->c, k->v->shared.gpu, h->run, n);
    else if (!k->dry)
        rows_run(k->c, k->v->shared.gpu, h->run, n);
    for (int i = 0; i < h->ndropped; i++)
        arena_drop(k, h->dropped[i]);
    h->ndropped = 0;
}
