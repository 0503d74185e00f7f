/* tile_place.c -- where each tile lies, and where the block must wait.
 *
 * A tile lives from the first act that uses it to the last; what is kept from
 * chunk to chunk, always. Places are taken first fit. Where there is too little
 * room, copies of tensors that nobody looks at for a while are made again
 * rather than kept; a tile that finds no place below the limit of shared memory
 * even so goes to the block's part of the workspace, whose places are found in
 * the same way.
 */
#include "tile.h"

#include <math.h>
#include <string.h>

enum { ALIGN = 16, EARLY = 8 };

static int64_t once_bytes(const Tile *t)
{
    int64_t n = (int64_t)t->elements * dtype_size(t->type);

    return (n + ALIGN - 1) / ALIGN * ALIGN;
}

static bool doubled(const Tiles *t, const Tile *tile)
{
    return t->ahead && tile->input;
}

static int64_t bytes_of(const Tiles *t, const Tile *tile)
{
    return once_bytes(tile) * (doubled(t, tile) ? 2 : 1);
}

/* A place of its own; small tiles, as sharing one would take a barrier. */
static bool is_kept(const Tiles *t, const Tile *tile)
{
    enum { SMALL = 256 };

    return tile->pinned || doubled(t, tile)
        || (!t->crowded && once_bytes(tile) <= SMALL);
}

/* Copies may begin some acts, `early`, before their tiles are read. */
static void find_lives(Tiles *t, int early)
{
    for (int i = 0; i < t->ntiles; i++)
        t->tile[i].lives = t->tile[i].uses = 0;
    for (int i = 0; i < t->nacts; i++)
        for (int u = 0; u < t->act[i].n; u++) {
            Tile *tile = &t->tile[t->act[i].use[u] / 2];
            int from = t->act[i].copies ? i - early : i;
            int before = tile->lives ? tile->life[tile->lives - 1].last : -1;
            if (!tile->lives || t->act[i].again)
                tile->life[tile->lives++].first = from > before ? from
                                                                : before + 1;
            tile->uses++;
            tile->solved |= t->act[i].synced;
            tile->life[tile->lives - 1].last = i;
            tile->pinned |= t->act[i].when != WITHIN;
        }
}

/* Shared memory that a block may have. */
static int64_t shared_limit(const Tiles *t)
{
    return (int64_t)options_machine(t->o)->shared;
}

static bool live_together(const Tiles *t, const Tile *a, const Tile *b)
{
    if (is_kept(t, a) || is_kept(t, b))
        return true;
    for (int i = 0; i < a->lives; i++)
        for (int j = 0; j < b->lives; j++)
            if (a->life[i].first <= b->life[j].last
                && b->life[j].first <= a->life[i].last)
                return true;
    return false;
}

/* The first gap among those placed before that live at the same time. */
static int64_t find_gap(const Tiles *t, const int *placed, int n, int tile,
                        bool spilled, int64_t base)
{
    int64_t want = bytes_of(t, &t->tile[tile]), at = base;
    bool moved = true;

    while (moved) {
        moved = false;
        for (int i = 0; i < n; i++) {
            const Tile *o = &t->tile[placed[i]];
            if (o->spilled != spilled || !live_together(t, o, &t->tile[tile])
                || o->at >= at + want || at >= o->at + bytes_of(t, o))
                continue;
            at = o->at + bytes_of(t, o);
            moved = true;
        }
    }
    return at;
}

/* The tensor cores read whole rows from shared memory alone, and a solve goes
 * row by row. */
static bool is_slow(const Tile *a)
{
    return a->type == BF16 || a->solved;
}

/* What it costs to have the tile elsewhere, an act and byte of its life. */
static double worth(const Tile *a)
{
    int acts = 0;

    for (int i = 0; i < a->lives; i++)
        acts += a->life[i].last - a->life[i].first + 1;
    return (a->uses + (is_slow(a) ? 1000 : 0))
         / ((double)once_bytes(a) * acts);
}

/* Kept tiles first, small ones before large ones; the rest by their acts, or
 * where there is too little room, by their worth. */
static bool goes_before(const Tiles *t, const Tile *a, const Tile *b)
{
    if (is_kept(t, a) != is_kept(t, b))
        return is_kept(t, a);
    if (is_kept(t, a))
        return bytes_of(t, a) < bytes_of(t, b);
    return t->crowded ? worth(a) > worth(b)
                      : a->life[0].first < b->life[0].first;
}

static int sort_tiles(const Tiles *t, int *order)
{
    int n = 0;

    for (int i = 0; i < t->ntiles; i++) {
        if (!t->tile[i].lives)
            continue;
        int at = n++;
        for (; at > 0 && goes_before(t, &t->tile[i], &t->tile[order[at - 1]]);
             at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
    return n;
}

static void find_places(Tiles *t)
{
    int *order = ctx_alloc(t->c, ((size_t)t->ntiles + 1) * sizeof *order);
    int64_t base = reload_place(t) + reload_bytes(t) + args_bytes(t),
        top = base;
    int64_t limit = shared_limit(t), spill = 0;
    int n = sort_tiles(t, order);

    for (int i = 0; i < n; i++) {
        Tile *tile = &t->tile[order[i]];
        tile->spilled = false;
        tile->at = find_gap(t, order, i, order[i], false, base);
        tile->spilled = tile->at + bytes_of(t, tile) > limit;
        if (tile->spilled)
            tile->at = find_gap(t, order, i, order[i], true, 0);
        int64_t end = tile->at + bytes_of(t, tile);
        if (tile->spilled && end > spill)
            spill = end;
        if (!tile->spilled && end > top)
            top = end;
    }
    t->out->shared = (int)top;
    t->out->spill = (spill + ALIGN - 1) / ALIGN * ALIGN;
}

void put_tile(const Tiles *t, Buf *b, int i, const char *place)
{
    const Tile *tile = &t->tile[i];

    buf_printf(b, "%s *const t%d = (%s *)(%s + %lld", ctype_text(tile->type),
               i, ctype_text(tile->type), tile->spilled ? "spill" : "arena",
               (long long)tile->at);
    if (place)
        buf_printf(b, " + (%s) %% 2 * %lld", place,
                   (long long)once_bytes(tile));
    buf_printf(b, ");\n");
}

static void declare(const Tiles *t, Buf *b, int i, const char *place)
{
    const Tile *tile = &t->tile[i];

    if (!tile->spilled || !reloads(t))
        put_tile(t, b, i, place);
    buf_printf(b, "enum { SHARED%d = %d };\n", i, !tile->spilled);
}

/* ---- copies made again ---- */

static void act_append(Tiles *to, const Act *a, bool again)
{
    to->act[to->nacts] = *a;
    to->act[to->nacts++].again = again;
}

/* The act that copies the tile, and nothing else writes it; or NULL. */
static const Act *copier(const Tiles *t, int tile)
{
    const Act *found = NULL;

    for (int i = 0; i < t->nacts; i++)
        for (int u = 0; u < t->act[i].n; u++) {
            if (t->act[i].use[u] != 2 * tile + 1)
                continue;
            if (found || !t->act[i].copies || t->act[i].when != WITHIN)
                return NULL;
            found = &t->act[i];
        }
    return found;
}

/* Whether the act copies a tile that nobody looks at for more than `gap` acts:
 * its place would be another's while the copy is under way. */
static bool copies_early(const Tiles *t, int at, int gap)
{
    int tile = t->act[at].n ? t->act[at].use[0] / 2 : 0;

    if (!t->act[at].copies || t->act[at].n != 1
        || copier(t, tile) != &t->act[at])
        return false;
    for (int i = at + 1; i < t->nacts; i++)
        for (int u = 0; u < t->act[i].n; u++)
            if (t->act[i].use[u] / 2 == tile)
                return i - at > gap;
    return false;
}

/* The acts, with a copy again before each that looks at a tile which nobody
 * has looked at for more than `gap` acts. */
static void copy_again(Tiles *t, int gap)
{
    Tiles old = *t;
    int *seen = ctx_alloc(t->c, ((size_t)t->ntiles + 1) * sizeof *seen);
    uint8_t *times = ctx_alloc(t->c, (size_t)t->ntiles + 1);
    bool *put_off = ctx_alloc(t->c, (size_t)t->ntiles + 1);
    size_t most = (size_t)t->nacts;

    for (int i = 0; i < t->nacts; i++)
        most += (size_t)t->act[i].n;
    t->act = ctx_alloc(t->c, (most + 1) * sizeof *t->act);
    t->nacts = 0;
    for (int i = 0; i < old.nacts; i++) {
        const Act *a = &old.act[i];
        if (copies_early(&old, i, gap)) {
            put_off[a->use[0] / 2] = true;
            continue;
        }
        for (int u = 0; u < a->n; u++) {
            int tile = a->use[u] / 2;
            bool reloads = seen[tile] && i + 1 - seen[tile] > gap
                     && times[tile] < MAX_LIVES - 1;
            const Act *load = reloads || put_off[tile] ? copier(&old, tile)
                                                    : NULL;
            seen[tile] = i + 1;
            if (!load)
                continue;
            act_append(t, load, !put_off[tile]);
            times[tile] += !put_off[tile];
            put_off[tile] = false;
        }
        act_append(t, a, false);
    }
}

/* ---- all of them ---- */

typedef struct Try { bool ahead; int early, gap; bool crowded; } Try;

/* What it costs that tiles lie in the workspace, and that copies are made
 * again: bytes that the block waits for, about. */
static double price(const Tiles *t)
{
    enum { AHEAD = 4 };                 /* a copy goes on meanwhile */
    double sum = 0;

    for (int i = 0; i < t->ntiles; i++) {
        const Tile *tile = &t->tile[i];
        double bytes = (double)once_bytes(tile);
        if (tile->spilled && tile->lives)
            sum += bytes * tile->uses * (is_slow(tile) ? 8 : 1);
        sum += bytes * (tile->lives > 1 ? tile->lives - 1 : 0) / AHEAD;
    }
    return sum;
}

static void try_places(Tiles *t, const Try *y)
{
    t->ahead = y->ahead;
    t->crowded = y->crowded;
    if (y->gap)
        copy_again(t, y->gap);
    find_lives(t, y->early);
    find_places(t);
}

/* Early copies, and two places for each input of a walk, if nothing has to
 * leave shared memory for it; copies made again, if that keeps more there. */
void tiles_place(Tiles *t)
{
    enum { ALL = 1 << 20 };
    static const Try list[] = {
        { true, ALL, 0, false }, { true, EARLY, 0, false },
        { true, 0, 0, false }, { false, ALL, 0, false },
        { false, EARLY, 0, false }, { false, EARLY, 16, false },
        { false, EARLY, 8, false }, { false, 2, 8, false },
        { false, 0, 8, true }, { false, 2, 4, false }, { false, 0, 4, true },
        { false, 0, 2, true }, { false, 0, 0, true },
    };
    enum { TRIES = sizeof list / sizeof *list };
    Act *const act = t->act;
    int nacts = t->nacts, best = t->k->kind != K_TOKEN ? 0 : 3;
    double least = INFINITY;

    for (int i = best; i < TRIES && least > 0; i++) {
        t->act = act;
        t->nacts = nacts;
        try_places(t, &list[i]);
        double now = list[i].ahead && t->out->spill ? INFINITY : price(t);
        if (now < least) {
            least = now;
            best = i;
        }
    }
    t->act = act;
    t->nacts = nacts;
    try_places(t, &list[best]);
}

void declare_tiles(const Tiles *t, Buf *b, const uint8_t *uses)
{
    if (t->out->spill && !reloads(t))
        buf_printf(b, "char *const spill = global(a.run.spill) + blockIdx.x *"
                   " %lldll;\n", (long long)t->out->spill);
    if (t->scratch)
        buf_printf(b, "float *const scratch = (float *)arena;\n"
                   "(void)scratch;\n");
    for (int i = 0; i < t->ntiles; i++)
        if (t->tile[i].lives && !doubled(t, &t->tile[i])
            && (!uses || uses[i]))
            declare(t, b, i, NULL);
}

void print_inputs(Tiles *t, Buf *b, const char *m, bool load)
{
    for (int i = 0; i < t->ntiles; i++)
        if (t->tile[i].lives && doubled(t, &t->tile[i]))
            declare(t, b, i, m);
    for (int i = 0; i < t->nacts && load; i++)
        if (t->act[i].loads)
            buf_put(b, t->act[i].text.s, t->act[i].text.len);
}

/* ---- barriers ---- */

static bool meet(const Tiles *t, const Tile *a, const Tile *b)
{
    return a->spilled == b->spilled
        && a->at < b->at + bytes_of(t, b) && b->at < a->at + bytes_of(t, a);
}

/* Whether the act touches what acts since the last barrier have written, or
 * writes what they have read. */
static bool must_wait(const Tiles *t, const Act *a, const int *since, int n)
{
    for (int i = 0; i < a->n; i++)
        for (int j = 0; j < n; j++)
            if ((a->use[i] % 2 || since[j] % 2)
                && meet(t, &t->tile[a->use[i] / 2], &t->tile[since[j] / 2]))
                return true;
    return false;
}

/* Acts being printed: what those since the last barrier have used, and the
 * copies under way. */
typedef struct Printing {
    Tiles *t;
    Buf *b;
    When when;
    int *since, n, cap;
    uint8_t *uses;                      /* per tile: since such a barrier */
    int *group, groups;                 /* per act: which of the copies it is,
                                           from 1 on; 0: not begun */
    uint8_t *arrived;                   /* per act */
} Printing;

static bool is_printed(const Printing *p, const Act *a)
{
    return a->when == p->when && a->text.len
        && !(p->t->ahead && a->loads);
}

static bool uses_place(const Tiles *t, const Act *a, int tile)
{
    for (int i = 0; i < a->n; i++)
        if (meet(t, &t->tile[a->use[i] / 2], &t->tile[tile]))
            return true;
    return false;
}

/* Whether the copy's tile is free from act `from` on. */
static bool may_begin(const Printing *p, int from, int copy)
{
    const Tiles *t = p->t;

    if (must_wait(t, &t->act[copy], p->since, p->n))
        return false;
    for (int i = from; i < copy; i++)
        if (is_printed(p, &t->act[i])
            && uses_place(t, &t->act[i], t->act[copy].use[0] / 2))
            return false;
    return true;
}

static void put_act(const Printing *p, const Act *a)
{
    bool open = reloads(p->t) && put_spilled(p->t, p->b, a);

    for (int i = 0; i < a->n; i++)
        p->uses[a->use[i] / 2] = 1;
    buf_put(p->b, a->text.s, a->text.len);
    buf_printf(p->b, "%s", open ? "}\n" : "");
}

static void begin_copies(Printing *p, int from)
{
    for (int i = from; i < p->t->nacts; i++) {
        const Act *a = &p->t->act[i];
        if (!a->copies || p->group[i] || !is_printed(p, a)
            || !may_begin(p, from, i))
            continue;
        put_act(p, a);
        buf_printf(p->b, "copy_commit();\n");
        p->group[i] = ++p->groups;
    }
}

/* Waits for the copies that the act reads; true if there are any. */
static bool await_copies(Printing *p, const Act *a)
{
    int last = 0;

    for (int i = 0; i < p->t->nacts; i++)
        if (p->group[i] > last && !p->arrived[i]
            && uses_place(p->t, a, p->t->act[i].use[0] / 2))
            last = p->group[i];
    for (int i = 0; i < p->t->nacts; i++)
        p->arrived[i] |= p->group[i] && p->group[i] <= last;
    if (last)
        buf_printf(p->b, "copy_wait<%d>();\n", p->groups - last);
    return last;
}

static void remember(Printing *p, const Act *a)
{
    if (p->n + a->n > p->cap) {
        size_t old = (size_t)p->cap * sizeof *p->since;
        p->cap = 2 * (p->n + a->n);
        p->since = ctx_grow(p->t->c, p->since, old,
                            (size_t)p->cap * sizeof *p->since);
    }
    memcpy(p->since + p->n, a->use, (size_t)a->n * sizeof *p->since);
    p->n += a->n;
}

static void end_stretch(Printing *p)
{
    if (p->when != WITHIN)
        return;
    stretch_end(p->t, p->b, p->uses);
    memset(p->uses, 0, (size_t)p->t->ntiles);
}

void print_acts(Tiles *t, Buf *b, When when)
{
    Printing p = { .t = t, .b = b, .when = when };

    p.group = ctx_alloc(t->c, ((size_t)t->nacts + 1) * sizeof *p.group);
    p.arrived = ctx_alloc(t->c, (size_t)t->nacts + 1);
    p.uses = ctx_alloc(t->c, (size_t)t->ntiles + 1);
    for (int i = 0; i < t->nacts; i++) {
        const Act *a = &t->act[i];
        if (!is_printed(&p, a) || p.group[i])
            continue;
        bool wait = await_copies(&p, a);
        if (wait || must_wait(t, a, p.since, p.n)) {
            buf_printf(b, "__syncthreads();\n");
            p.n = 0;
            end_stretch(&p);
        }
        begin_copies(&p, i);
        if (p.group[i])
            continue;
        put_act(&p, a);
        if (a->synced)
            p.n = 0;
        else
            remember(&p, a);
    }
    end_stretch(&p);
}

/* Once for all its items: what others of them leave there is as good. */
void put_clear(const Tiles *t, Buf *b)
{
    if (t->out->spill)
        buf_printf(b, "if (a.run.ragged) {\n"
                   "clear(spill_of(a.run, %lldll), %lld);\n"
                   "__syncthreads();\n}\n", (long long)t->out->spill,
                   (long long)t->out->spill);
}
