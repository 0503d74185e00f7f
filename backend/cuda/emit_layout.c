/* emit_layout.c -- a block's shared memory: stages, vectors, buffers. */
#include "emit.h"

#include <stdio.h>

static int put_area(Buf *b, int *at, int bytes, const char *fmt, unsigned n)
{
    int here = *at;
    char name[80];
    snprintf(name, sizeof name, fmt, n);
    buf_printf(b, "constexpr int %s = %d;\n", name, here);
    *at += bytes;
    return here;
}

/* The ahead warpgroup's acts, in order: running sums, values a token, matrices
 * for gdots, gates' sums where they come after those, anchors, the gdots, the
 * other matrices. Between kinds it meets; within one, a warp makes its own rows
 * of its own rows. */
enum { SUMS = 1, DOTS, EARLY, GATES = EARLY + MAX_TILES, ANCHORS,
       GDOTS = ANCHORS + MAX_TILES, LATE, FOREVER = 99 };

static int computed_at(const Emit *e, int tile)
{
    const Tile *t = &e->tile[tile];
    return (t->anchor ? ANCHORS : t->gated ? EARLY : LATE) + tile;
}

/* When tile is last read, as far as its place goes. */
static int read_until(const Emit *e, int tile)
{
    const Tile *t = &e->tile[tile];
    if (e->ranks > 1)                   /* rows are made of others' rows */
        return FOREVER;
    int until = t->direct ? FOREVER : t->gated ? GDOTS : t->dotted ? DOTS : 0;
    for (int i = 0; i < e->ngates && !until; i++)
        until = !(e->gate[i].sources >> tile & 1) ? 0
              : e->overlays ? GATES : SUMS;
    for (int i = 0; i < e->nchains && !until; i++)
        until = e->chain[i].sources >> tile & 1 ? SUMS : 0;
    for (int i = 0; i < e->ntiles; i++)
        if (e->tile[i].computed && e->tile[i].sources >> tile & 1
            && computed_at(e, i) > until)
            until = computed_at(e, i);
    return until;
}

/* A slot of the stage: what it holds, and until when. half: of two tiles a
 * block loads its own alone. cut: its tiles are not where they were. */
typedef struct Slot { int at, bytes, until; bool half, cut; } Slot;

/* What is given to the other block comes when it will: it has no place that
 * this one loads or reads. */
static bool suits(const Emit *e, int tile, const Slot *slot)
{
    bool given = e->paired && tile_axis(e, e->tile[tile].r) != e->row_axis;
    int now = computed_at(e, tile), begun = now < GDOTS ? EARLY : LATE;
    if (e->joint && slot->cut && slot->until >= begun)
        return false;                   /* the other warpgroup may read it */
    return slot->until <= now && (slot->half || !given);
}

static void put_tile(Emit *e, Buf *b, int tile, Slot *slot, int *n, int *at)
{
    const Tile *t = &e->tile[tile];
    int bytes = tile_count(e, t->r) * (t->computed ? TILE_BYTES
                                       : tile_bytes_of(e, t->r)), i = *n;
    char name[32];
    if (t->anchor)
        snprintf(name, sizeof name, "ANCHOR_%u_%d", (unsigned)t->r, t->gate);
    else
        snprintf(name, sizeof name, "%s_%u", t->computed ? "TILE"
                 : loaded_name(e, t->r), (unsigned)t->r);
    for (int s = 0; s < *n && t->computed; s++) /* early ones are for others */
        if (slot[s].bytes >= bytes && suits(e, tile, &slot[s])
            && (i == *n || slot[s].until > slot[i].until))
            i = s;
    if (i < *n) {
        Slot rest = { slot[i].at + bytes, slot[i].bytes - bytes,
                      slot[i].until, false, true };
        if (rest.until == computed_at(e, tile)) /* one made beside it reads */
            rest.until = t->gated ? GDOTS : FOREVER;
        buf_printf(b, "constexpr int %s = %d;\n", name, slot[i].at);
        slot[i].bytes = bytes;
        slot[i].half = false;
        if (rest.bytes)
            slot[(*n)++] = rest;
    } else {
        buf_printf(b, "constexpr int %s = %d;\n", name, *at);
        slot[(*n)++] = (Slot){ .at = *at, .bytes = bytes,
            .half = is_half_loaded(e, t) && !is_float(e, t->r),
            .cut = is_float(e, t->r) };
        *at += bytes;
    }
    slot[i].until = read_until(e, tile);
}

/* One that comes after the gdots has a place that those are the last to read.
 */
static void put_score(Emit *e, Buf *b, int score, Slot *slot, int n, int *at)
{
    int i = 0;
    bool after = e->reuses && has_gdot(e, e->score[score].root);
    while (i < n && (!after || slot[i].until > GDOTS
                     || slot[i].bytes < TILE_BYTES))
        i++;
    put_area(b, i < n ? &slot[i].at : at, TILE_BYTES, "SCORE_%u",
             (unsigned)score);
    if (i < n)
        slot[i].bytes -= TILE_BYTES;
}

static int layout_stage(Emit *e, Buf *b)
{
    Slot slot[2 * MAX_TILES];           /* a place may be cut in two */
    int at = 0, n = 0;
    for (int pass = 0; pass < 3; pass++)    /* loaded, early, late */
        for (int i = 0; i < e->ntiles; i++)
            if (e->tile[i].computed + (e->tile[i].computed && !e->tile[i].gated)
                == pass)
                put_tile(e, b, i, slot, &n, &at);
    for (int i = 0; i < e->nscores; i++)
        put_score(e, b, i, slot, n, &at);
    for (int i = 0; i < e->ncuts; i++)
        buf_printf(b, "constexpr int CUT_%d = SCORE_%d + %d;\n", i, i / 2,
                   i % 2 * TILE_BYTES / 2);
    return (at + 1023) & ~1023;
}

/* A running sum: a row before the first token, and rows that are apart by 8
 * banks. */
static int gate_bytes(const Emit *e, Ref of)
{
    int ax = tile_axis(e, of);
    return 4 * (ROWS + 1) * (padded(e->g->axis[ax].size) + 8);
}

/* The angles before a chunk, twice, and their rates. */
static int rotation_bytes(const Emit *e, int rotation)
{
    return 4 * padded(e->g->axis[tile_axis(e,
                                           e->rotation[rotation].scan)].size);
}

static int layout_vectors(Emit *e, Buf *b)
{
    int at = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < e->npub; i++)
            if (e->pub[i].token == !pass) {
                buf_printf(b, "constexpr int AT_%s = %d;\n", e->pub[i].name,
                           at);
                at += pass ? 16 : 4 * ROWS;
            }
    for (int i = 0; i < e->nkeys; i++)
        put_area(b, &at, 4 * padded(e->g->axis[tile_axis(e, e->key[i])].size),
                 "KEY_%u", (unsigned)i);
    return (at + 255) & ~255;
}

/* What each ahead warpgroup has for itself. */
static int layout_scratch(Emit *e, Buf *b)
{
    int at = 0;
    for (int i = 0; i < e->ngates; i++)
        put_area(b, &at, gate_bytes(e, e->gate[i].of), "GATE_%u",
                 (unsigned)i);
    int gates = at;
    at = e->overlays ? 0 : at;
    for (int i = 0; i < e->nchains; i++)
        put_area(b, &at, gate_bytes(e, e->chain[i].scan), "CHAIN_%u",
                 (unsigned)i);
    at = at < gates ? gates : at;
    if (e->inverse) {                   /* last: the gates are through */
        buf_printf(b, "constexpr int INVERSE = 0;\n");
        at = at < INVERSE_BYTES ? INVERSE_BYTES : at;
    }
    for (int i = 0; i < e->nchains; i++)
        put_area(b, &at, 4 * padded(e->g->axis[tile_axis(e, e->chain[i].scan)]
                                    .size), "CARRY_%u", (unsigned)i);
    for (int i = 0; i < e->nrotations; i++)
        put_area(b, &at, 3 * rotation_bytes(e, i), "ANGLE_%u", (unsigned)i);
    return at;
}

static int count_outputs(const Emit *e)
{
    int n = 0;
    for (int i = 0; i < e->g->nout; i++)
        n += e->g->out[i].node && e->mine[e->g->out[i].node];
    return n;
}

int count_rings(const Emit *e)
{
    int n = 0;
    for (Ref r = 1; r < e->g->len; r++)
        n += e->vector[r] && e->g->n[tile_input(e, r)].op == OP_input
          && r == tile_base(e, r) && is_token(e, r);
    return n;
}

/* What the paired block has, too. */
static int first_bytes(const Emit *e)
{
    return FIRST_BYTES * (e->paired ? 2 : 1);
}

/* The most stages that fit: with two buffers an output, with one, and last
 * with one warpgroup ahead where there could be two. One stage is for one
 * state warpgroup alone, when nothing else is left. */
static void choose_stages(Emit *e, int stage, int scratch)
{
    static const struct { int8_t stages, buffers, tight; } choice[] = {
        { 4, 2, 0 }, { 3, 2, 0 }, { 3, 1, 1 }, { 2, 2, 1 }, { 2, 1, 1 },
        { 1, 1, 1 } };
    enum { N = sizeof choice / sizeof *choice };
    CudaKernel *k = e->out;
    int output = count_outputs(e) * e->groups * TILE_BYTES;
    int rest = count_rings(e) * RING_BYTES + e->nfirst * first_bytes(e)
             + 256 + 1024;
    for (; e->aheads > e->team; e->aheads--)
        for (int i = 0; i < (alternates(e) + e->groups > 2 ? N - 1 : N);
             i++) {
            k->stages = choice[i].stages;
            e->buffers = choice[i].buffers;
            e->tight = choice[i].tight;
            k->shared = k->stages * stage + e->buffers * output
                      + alternates(e) * scratch + rest;
            if (k->shared <= SHARED_MAX)
                return;
        }
    e->aheads = 1;
}

/* Work beyond products for the ahead warpgroups: then two of them, if their
 * registers are there, and if a chunk's need not wait for the last one's. */
static bool is_heavy(const Emit *e)
{
    bool heavy = e->inverse || e->ngates;
    for (int i = 0; i < e->ntiles; i++)
        heavy |= e->tile[i].computed;
    return heavy;
}

void emit_layout(Emit *e, Buf *b)
{
    int stage = layout_stage(e, b), vectors = layout_vectors(e, b);
    int scratch = layout_scratch(e, b);
    CudaKernel *k = e->out;
    e->aheads = e->team || e->joint
             || (e->groups == 1 && is_heavy(e) && !e->nchains)
              ? 2 : 1;
    choose_stages(e, stage + vectors, scratch);
    int at = k->stages * stage;
    /* a result is stored beside the next chunk's products, where there are
     * registers to keep it */
    buf_printf(b, "constexpr bool AT_ONCE = %d, PAIRED = %d;\n", e->tight
               && (e->groups == 2 || e->ranks > 1), e->paired);
    buf_printf(b, "constexpr int STAGES = %d, STAGE_BYTES = %d, VECTOR_BYTES ="
               " %d,\nBUFFERS = %d, AHEADS = %d, SCRATCH_BYTES = %d;\n",
               k->stages, stage, vectors, e->buffers, e->aheads, scratch);
    for (int i = 0; i < e->g->nout; i++)
        if (e->g->out[i].node && e->mine[e->g->out[i].node])
            put_area(b, &at, e->buffers * e->groups * TILE_BYTES, "OUTPUT_%u",
                     (unsigned)i);
    put_area(b, &at, k->stages * vectors, "VECTORS", 0);
    put_area(b, &at, count_rings(e) * RING_BYTES, "INPUTS", 0);
    put_area(b, &at, alternates(e) * scratch, "SCRATCH", 0);
    for (int i = 0; i < e->nfirst; i++)
        put_area(b, &at, first_bytes(e), "FIRST_%u", (unsigned)i);
    put_area(b, &at, 256, "BARRIERS", 0);
}
