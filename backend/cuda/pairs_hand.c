/* pairs_hand.c -- a call over all pairs in hand: which kernels it takes, what
 * lies in its workspace, which way it goes back.
 */
#include "pairs_hand.h"

#include <stdlib.h>
#include <string.h>

/* Tokens of a block that weighs each entry: a pair of them a thread. */
enum { ENTRIES_OWN = 16 };

static bool is_packed(const Call *call)
{
    for (int64_t s = 0; call->seq && s < call->nseq; s++)
        if (call->seq[s].b != s || call->seq[s].start
            || call->seq[s].len != call->seq[0].len)
            return true;
    return call->device_cu;
}

/* Tokens of a batch entry. */
static int64_t tokens_of(const Call *call, bool packed)
{
    const Seq *last = call->seq + call->nseq - 1;

    if (!call->seq || !call->nseq)
        return call->tokens;
    return packed ? last->start + last->len : call->seq[0].len;
}

static int group_of(const Call *call, const View *v)
{
    return !v->heads ? 1 : v->sh ? call->heads / v->heads : call->heads;
}

HostPlace place_of(const Call *call, const View *v)
{
    return (HostPlace){ (uint64_t)(uintptr_t)v->data, v->sb, v->st, v->sh,
                        group_of(call, v), v->dtype };
}

static bool is_short(DType d) { return d == BF16 || d == F16; }

/* Can the copy engine read it, and pieces of 16 bytes be written to it? */
static bool is_whole(const View *v)
{
    return v->sd[0] == 1 && v->st % 8 == 0 && v->sh % 8 == 0 && v->sb % 8 == 0
        && (uintptr_t)v->data % 16 == 0;
}

int wgmma_shared(const Hand *h, int kernel)
{
    const PairLeaves *p = &h->leaves;
    int key = (h->key + 63) / 64 * 64, value = (h->value + 63) / 64 * 64;
    int wide = key > value ? key : value, soft = h->m->softmax ? 2 : 0;
    int all = kernel == FORWARD
        ? OWN * wide * 2 + 2 * 128 * (key + value) * 2 + 2 * p->cols * 128 * 4
        : OWN * (key + value) * 2 + 3 * 64 * (key + value) * 2
          + 3 * 64 * 4 * (kernel == KEYS ? soft + p->rows : p->cols);

    return all + 128 + 1024;
}

/* The most that a kernel of its way back with wgmma takes. */
static int most_shared(const Hand *h)
{
    int keys = wgmma_shared(h, KEYS), queries = wgmma_shared(h, QUERIES);

    return keys > queries ? keys : queries;
}

int leaf_entries(const Hand *h, int k)
{
    return pair_plane(&h->shape, k + 1) - pair_plane(&h->shape, k);
}

/* As EntryRoom of pairs_entries.cuh. */
int entries_shared(const Hand *h, int own)
{
    int key = h->key | 1, value = h->value | 1, leaves = h->leaves.n;

    if (pair_has(&h->shape, PER_KEY) && pair_has(&h->shape, PER_VALUE))
        value = 1;                      /* one at a time */
    return (int)sizeof(float) * own * (3 * (key + value) + (2 + leaves) * own);
}

/* As many tokens as have room, up to ENTRIES_OWN. */
static int entries_own(const Hand *h)
{
    const Call *call = h->p->call;
    int64_t most = (int64_t)h->d->machine->shared;
    int own = ENTRIES_OWN;

    most = call->cache && call->cache < most ? call->cache : most;
    while (own > 1 && entries_shared(h, own) > most)
        own /= 2;
    if (entries_shared(h, own) > most)
        fail(h->c, 0, "%lld bytes of a block's memory are too few for pairs of "
             "tokens that are weighed for each entry", (long long)most);
    return own;
}

/* Wide enough for wgmma? All matrices are of one type of 16 bits. */
static bool fits_wgmma(const Hand *h)
{
    const Call *call = h->p->call;
    DType type = call->in[h->in[0]].dtype;
    bool fits = h->d->arch / 10 == 9 && is_short(type) && h->key <= 128
        && !h->shape.entries
        && !(h->p->backward && call->way == 1 + TILES)
        && (!h->p->backward || !call->cache
            || most_shared(h) <= call->cache)
        && h->value <= 128 && h->key % 8 == 0 && h->value % 8 == 0
        && h->tokens < 1 << 30;

    for (int k = 0; k < 3; k++)
        fits = fits && call->in[h->in[k]].dtype == type
            && is_whole(&call->in[h->in[k]]);
    if (h->p->backward)
        return fits && h->p->dy.dtype == type && is_whole(&h->p->dy);
    return fits && call->out[0].dtype == type && is_whole(&call->out[0]);
}

/* Does a kernel write input k's gradient itself? */
static bool is_direct(const Hand *h, const View *v)
{
    return v->heads == h->heads && (v->sh || h->heads == 1)
        && (!h->shape.wgmma || (v->dtype == h->shape.type && is_whole(v))
            || (v->dtype == F32 && v->sd[0] == 1 && v->st % 2 == 0
                && v->sh % 2 == 0 && v->sb % 2 == 0))
        && v->sd[0] == 1;
}

static int64_t take(Scratch *r, int64_t bytes)
{
    int64_t at = r->bytes;

    r->bytes += (bytes + PAIR_ALIGN - 1) / PAIR_ALIGN * PAIR_ALIGN;
    return at;
}

int leaf_input(const Hand *h, int leaf)
{
    return graph_find_input(h->p->step, h->m->leaf[leaf].name);
}

int64_t lse_bytes(const Hand *h)
{
    return (h->heads * h->rows * 4 + PAIR_ALIGN - 1) / PAIR_ALIGN * PAIR_ALIGN;
}

int64_t row_slots(const Hand *h, int64_t rows)
{
    int64_t nseq = h->p->call->nseq;

    return h->packed ? h->tokens / rows + nseq
                     : nseq * ((h->tokens + rows - 1) / rows);
}

/* Of what parts of the rows add to the first keys' gradients. */
static int64_t part_bytes(const Hand *h)
{
    int64_t width = (h->key + 63) / 64 * 64 + (h->value + 63) / 64 * 64
                  + h->leaves.cols;

    width += width % 2;                 /* as PART_WIDTH */
    if (!h->first.keys || !h->shape.wgmma)
        return 0;
    return row_slots(h, h->first.span) * h->heads * h->first.keys * width * 4;
}

int64_t score_width(const Hand *h)
{
    int64_t band = pair_band(h->m);

    return band && band < h->tokens ? band : h->tokens;
}

/* A head's of all rows. */
static int64_t score_bytes(const Hand *h)
{
    return h->rows * score_width(h) * (int64_t)sizeof(float);
}

static void find_scratch(Hand *h)
{
    Scratch *r = &h->scratch;
    int64_t plane = h->heads * h->rows;

    int timed = pair_plane(&h->shape, h->leaves.rows + h->leaves.cols);
    int planes = pair_plane(&h->shape, h->leaves.n);

    r->leaf = take(r, timed * plane * 8);
    r->number = take(r, (int64_t)(planes - timed) * h->heads * 8);
    if (!h->p->backward)
        return;
    r->lse = take(r, plane * 4);
    r->y = take(r, plane * h->value * 4);
    r->delta = take(r, plane * 4);
    r->dleaf = take(r, planes * plane * 4);
    r->part = take(r, part_bytes(h));
    if (h->way && h->way->way == TILES) {
        r->scores = take(r, h->turn * score_bytes(h));
        r->gains = take(r, h->turn * score_bytes(h));
    }
    for (int k = 0; k < 3; k++) {
        const View *v = &h->p->dx[h->in[k]];
        r->d[k] = v->data && is_direct(h, v) ? -1
            : take(r, plane * (k < 2 ? h->key : h->value) * 4);
    }
    for (int k = 0; k < h->leaves.n; k++)
        r->sum[k] = take(r, leaf_entries(h, k) * plane * 4);
}

/* What leaf k has a number for. */
static int kind_of(const Hand *h, int k)
{
    const Graph *g = h->p->step;
    const Input *in = &g->in[leaf_input(h, h->leaves.leaf[k])];

    if (in->rank > 1)
        fail_help(h->c, 0, "keys and values of one axis; or the CPU", "%s: "
                  "pairs that are weighed by %s for each entry of %d axes have "
                  "no kernels on a GPU", g->name, in->name, in->rank);
    return !in->axes ? PER_TOKEN
         : in->axes == g->in[h->in[1]].axes ? PER_KEY : PER_VALUE;
}

/* ---- the way back ---- */

static PairAsk road_ask(const Hand *h)
{
    const Call *call = h->p->call;
    int64_t most = (int64_t)h->d->machine->shared, nseq = call->nseq;
    PairAsk a;

    memset(&a, 0, sizeof a);            /* compared as bytes */
    a.key = h->key;
    a.value = h->value;
    a.tokens = (double)(h->packed ? (h->tokens + nseq - 1) / (nseq ? nseq : 1)
                                  : h->tokens);
    a.tokens = a.tokens > 1 ? a.tokens : 1;
    a.heads = (double)h->heads * (double)nseq;
    a.element = dtype_size(call->in[h->in[0]].dtype);
    a.memory = call->cache && call->cache < most ? call->cache : most;
    return a;
}

typedef struct Road { const Hand *h; PairPrograms **all; const PairWay *found; }
    Road;

static void find_road(Ctx *c, void *ud)
{
    Road *k = ud;
    const Hand *h = k->h;
    const Machine *on = h->d->machine;
    int asked = h->p->call->way;
    PairAsk ask = road_ask(h);

    if (!*k->all && !(*k->all = calloc(1, sizeof **k->all)))
        fail_code(c, ERR_MEMORY, "out of memory");
    PairRoad *r = (*k->all)->roads;
    while (r && (r->asked != asked || memcmp(&r->ask, &ask, sizeof ask)))
        r = r->next;
    if (!r) {
        PairWay way;
        if (!asked) {
            way = pair_best_way(c, h->m, &ask, on);
            if (way.way == TILES && 2 * score_bytes(h) > PAIR_SCORES_MOST)
                pair_way(c, h->m, &ask, on, BLOCKS, &way);
        } else if (!pair_way(c, h->m, &ask, on, (AttentionWay)(asked - 1),
                             &way))
            fail(c, 0, "cache = %d: too little for that way back over all pairs"
                 " of tokens", (int)ask.memory);
        if (!way.shape[PAIR_KEYS].own)  /* blocks do not fit either */
            way = pair_best_way(c, h->m, &ask, on);
        r = calloc(1, sizeof *r);
        if (!r)
            fail_code(c, ERR_MEMORY, "out of memory");
        *r = (PairRoad){ (*k->all)->roads, ask, asked, way };
        (*k->all)->roads = r;           /* freed with the programs */
    }
    k->found = &r->way;
}

static int heads_at_once(const Hand *h)
{
    int64_t slots[PAIR_KERNELS];

    for (int k = 0; k < PAIR_KERNELS; k++)
        slots[k] = h->way->shape[k].own
                 ? row_slots(h, h->way->shape[k].own) : 0;
    return pair_heads(h->way, h->d->machine, h->heads, 2 * score_bytes(h),
                      slots);
}

static void set_way(Hand *h, PairPrograms **all)
{
    Road road = { h, all, NULL };

    gpu_locked(h->c, h->g, find_road, &road);
    h->way = road.found;
    h->turn = h->way->way == TILES ? heads_at_once(h) : h->heads;
}

PairsShape plain_shape(const Hand *h)
{
    PairsShape s;

    memset(&s, 0, sizeof s);            /* compared as bytes */
    s.key = h->key;
    s.value = h->value;
    s.type = F32;
    for (int k = 0; k < h->leaves.n; k++)
        s.kind[k] = (uint8_t)kind_of(h, k);
    s.entries = h->shape.entries;
    return s;
}

Hand hand_of(Ctx *c, Gpu *g, PairPrograms **all, const PairsCall *p,
                    bool plain)
{
    static const char *const name[] = { "q", "k", "v" };
    const Call *call = p->call;
    Hand h = { .c = c, .g = g, .p = p, .heads = call->heads };

    h.d = gpu_enter(c, g);
    h.m = mask_copy(c, p->step->mask);
    h.leaves = pair_leaves(h.m);
    h.first = pair_first(h.m);
    for (int k = 0; k < 3; k++)
        h.in[k] = graph_find_input(p->step, name[k]);
    h.key = (int)entry_count(call->size, p->step->in[h.in[1]].axes);
    h.value = (int)entry_count(call->size, p->step->in[h.in[2]].axes);
    h.packed = is_packed(call);
    h.tokens = tokens_of(call, h.packed);
    h.rows = h.packed ? h.tokens : h.tokens * call->nseq;
    h.shape = plain_shape(&h);
    if (pair_has(&h.shape, PER_KEY) || pair_has(&h.shape, PER_VALUE)) {
        h.shape.entries = entries_own(&h);
        h.first.keys = 0;               /* a block has all rows of its keys */
    }
    h.shape.wgmma = !plain && fits_wgmma(&h);
    h.shape.type = h.shape.wgmma ? call->in[h.in[0]].dtype : F32;
    for (int k = 0; k < 3 && h.shape.wgmma && p->backward; k++) {
        const View *v = &p->dx[h.in[k]];
        h.shape.floats[k] = !is_direct(&h, v) || v->dtype == F32;
    }
    if (p->backward && !h.shape.wgmma && !h.shape.entries)
        set_way(&h, all);
    find_scratch(&h);
    return h;
}

bool goes_plain(PairPrograms *const *all)
{
    return *all && (*all)->plain;
}

int64_t pairs_workspace(Ctx *c, Gpu *g, PairPrograms **all, const PairsCall *p)
{
    return hand_of(c, g, all, p, goes_plain(all)).scratch.bytes;
}

/* What the way back needs of the way forward: logsumexp, and y. */
int64_t pairs_kept(const PairsCall *p)
{
    const Call *call = p->call;
    bool packed = is_packed(call);
    int64_t rows = tokens_of(call, packed) * (packed ? 1 : call->nseq);
    int64_t value = entry_count(call->size, p->step->in[graph_find_input(
                                p->step, "v")].axes);
    int64_t lse = (call->heads * rows * 4 + PAIR_ALIGN - 1) / PAIR_ALIGN
                * PAIR_ALIGN;

    if (!p->step->mask->softmax)
        return 0;
    return lse + call->heads * rows * value * dtype_size(call->out[0].dtype);
}
