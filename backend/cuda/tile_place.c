/* tile_place.c -- where each tile lies, and where the block must wait.
 *
 * A tile lives from the first act that uses it to the last; what is kept from
 * chunk to chunk, always. Places are taken first fit; a tile that finds none
 * below the limit of shared memory goes to the block's part of the workspace,
 * whose places are found in the same way.
 */
#include "tile.h"

#include <string.h>

enum { ALIGN = 16 };

static int64_t bytes_of(const Tile *t)
{
    int64_t n = (int64_t)t->elements * dtype_size(t->type);

    return (n + ALIGN - 1) / ALIGN * ALIGN;
}

static void find_lives(Tiles *t)
{
    for (int i = 0; i < t->nacts; i++)
        for (int u = 0; u < t->act[i].n; u++) {
            Tile *tile = &t->tile[t->act[i].use[u] / 2];
            if (tile->first < 0)
                tile->first = i;
            tile->last = i;
            tile->pinned |= t->act[i].when != WITHIN;
        }
}

/* Shared memory that a block may have, by compute capability. */
static int64_t shared_limit(const Tiles *t)
{
    switch (t->o->arch) {
    case 86: case 89: case 120: case 121: return 99 << 10;
    case 90: case 100: case 103: return 227 << 10;
    }
    return 163 << 10;
}

static bool live_together(const Tile *a, const Tile *b)
{
    return a->pinned || b->pinned || (a->first <= b->last
                                      && b->first <= a->last);
}

/* The first gap among those placed before that live at the same time. */
static int64_t find_gap(const Tiles *t, const int *placed, int n, int tile,
                        bool spilled, int64_t base)
{
    int64_t want = bytes_of(&t->tile[tile]), at = base;
    bool moved = true;

    while (moved) {
        moved = false;
        for (int i = 0; i < n; i++) {
            const Tile *o = &t->tile[placed[i]];
            if (o->spilled != spilled || !live_together(o, &t->tile[tile])
                || o->at >= at + want || at >= o->at + bytes_of(o))
                continue;
            at = o->at + bytes_of(o);
            moved = true;
        }
    }
    return at;
}

/* Kept tiles first, small ones before large ones; the rest by their acts. */
static bool goes_before(const Tile *a, const Tile *b)
{
    if (a->pinned != b->pinned)
        return a->pinned;
    return a->pinned ? bytes_of(a) < bytes_of(b) : a->first < b->first;
}

static int sort_tiles(const Tiles *t, int *order)
{
    int n = 0;

    for (int i = 0; i < t->ntiles; i++) {
        if (t->tile[i].first < 0)
            continue;
        int at = n++;
        for (; at > 0 && goes_before(&t->tile[i], &t->tile[order[at - 1]]);
             at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
    return n;
}

void tiles_place(Tiles *t, Buf *b)
{
    int *order = ctx_alloc(t->c, ((size_t)t->ntiles + 1) * sizeof *order);
    int64_t base = t->scratch ? 32 * (int64_t)sizeof(float) : 0, top = base;
    int64_t limit = shared_limit(t) - t->slack, spill = 0;

    find_lives(t);
    int n = sort_tiles(t, order);
    for (int i = 0; i < n; i++) {
        Tile *tile = &t->tile[order[i]];
        tile->at = find_gap(t, order, i, order[i], false, base);
        tile->spilled = tile->at + bytes_of(tile) > limit;
        if (tile->spilled)
            tile->at = find_gap(t, order, i, order[i], true, 0);
        int64_t end = tile->at + bytes_of(tile);
        if (tile->spilled && end > spill)
            spill = end;
        if (!tile->spilled && end > top)
            top = end;
    }
    if (t->scratch)
        buf_printf(b, "float *const scratch = (float *)arena;\n");
    for (int i = 0; i < t->ntiles; i++)
        if (t->tile[i].first >= 0)
            buf_printf(b, "%s *const t%d = (%s *)(%s + %lld);\n",
                       ctype_text(t->tile[i].type), i,
                       ctype_text(t->tile[i].type),
                       t->tile[i].spilled ? "spill" : "arena",
                       (long long)t->tile[i].at);
    t->out->shared = (int)top + t->slack;
    t->out->spill = spill ? spill + t->slack + ALIGN : 0;
}

/* ---- barriers ---- */

static bool meet(const Tile *a, const Tile *b)
{
    return a->spilled == b->spilled && a->at < b->at + bytes_of(b)
        && b->at < a->at + bytes_of(a);
}

/* Whether the act touches what acts since the last barrier have written, or
 * writes what they have read. */
static bool must_wait(const Tiles *t, const Act *a, const int *since, int n)
{
    for (int i = 0; i < a->n; i++)
        for (int j = 0; j < n; j++)
            if ((a->use[i] % 2 || since[j] % 2)
                && meet(&t->tile[a->use[i] / 2], &t->tile[since[j] / 2]))
                return true;
    return false;
}

void print_acts(Tiles *t, Buf *b, When when)
{
    int *since = NULL, n = 0, cap = 0;

    for (int i = 0; i < t->nacts; i++) {
        const Act *a = &t->act[i];
        if (a->when != when || !a->text.len)
            continue;
        if (must_wait(t, a, since, n)) {
            buf_printf(b, "__syncthreads();\n");
            n = 0;
        }
        buf_put(b, a->text.s, a->text.len);
        if (a->synced) {
            n = 0;
            continue;
        }
        if (n + a->n > cap) {
            size_t old = (size_t)cap * sizeof *since;
            cap = 2 * (n + a->n);
            since = ctx_grow(t->c, since, old, (size_t)cap * sizeof *since);
        }
        memcpy(since + n, a->use, (size_t)a->n * sizeof *since);
        n += a->n;
    }
}
