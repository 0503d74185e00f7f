/* emit_computed.c -- matrices of tokens and one axis that are computed, tile by
 * tile from loaded ones; and who computes them.
 *
 * Two blocks of one head, each with half of the values, need the same matrices
 * of keys. Where nothing needs whole rows of them they are a cluster, paired: a
 * block loads and makes one of a matrix's two tiles and gives it to the other,
 * half the loads and half the arithmetic for a copy of 8 KiB. The two go from
 * chunk to chunk together: a stage is empty when both are through with it, and
 * its barrier `shared` says that the other's tiles are there.
 *
 * A block with all values of a head has no other block to share with, and few
 * registers for what runs ahead. There two warpgroups of half the registers are
 * a team: each makes one of a matrix's two tiles and works out half of a
 * score's columns, and a chunk is through in half the time. The state's
 * warpgroups lend them registers by reading what they multiply later
 * (emit_order.c).
 *
 * Either way a warp reads the next 16 columns of a tile while it works out
 * these, so that it needs few registers and waits once a tile. What binds is
 * what an SM issues: a role beside the state's counts by the instruction.
 */
#include "ahead.h"

/* ---- text ---- */

static void columns(Ahead *a, Buf *b)
{
    buf_printf(b, "UNROLL for (int n = 0; n < %d; n++) {\n"
               "const int k0 = 64 * t%s + 8 * n + at.col;\n",
               a->slim ? 2 : 8, a->slim ? " + 16 * s" : "");
    buf_put(b, a->b->s, a->b->len);
    buf_printf(b, "}\n");
}

static bool is_read(const Ahead *a, Ref r)
{
    return is_tile(a->e, r) || is_there(a, r);
}

static void read_tiles(Ahead *a, Buf *b)
{
    Emit *e = a->e;
    for (int i = 0; i < a->n; i++) {
        Ref r = a->order[i];
        if (is_read(a, r))
            buf_printf(b, "%s in%u[%d];\nread_fragment(in%u, %s + %d * t, at"
                       "%s);\n", is_float(e, r) ? "float" : "u32",
                       (unsigned)r, is_float(e, r) ? 32 : 16, (unsigned)r,
                       tile_place(e, r), tile_bytes_of(e, r),
                       tile_rows(e, r));
    }
}

/* Whether a value is far below 0 where a swish is for others; false: there is
 * no swish. */
static bool find_deep(Ahead *a, Buf *b)
{
    char *m = NULL;
    for (int i = 0; i < a->n; i++) {
        Ref x = swish_of(a, a->order[i]);
        if (x)
            m = ctx_format(a->e->c, m ? "deepest(in%u, %s)" : "deepest(in%u)",
                           (unsigned)x, m);
    }
    if (m)
        buf_printf(b, "const bool deep = %s != MINUS8;\n", m);
    return m;
}

/* A swish is for values that are not far below 0: a warp that has others does
 * its columns again in a second way, a whole tile's read once more. */
static void columns_twice(Ahead *a, Buf *b, bool swish)
{
    buf_printf(b, swish ? "{\nconstexpr bool DEEP = 0;\n" : "");
    columns(a, b);
    if (!swish)
        return;
    buf_printf(b, "}\nif (__any_sync(~0u, deep)) {\n"
               "constexpr bool DEEP = 1;\n");
    if (!a->slim)
        read_tiles(a, b);
    columns(a, b);
    buf_printf(b, "}\n");
}

/* A tile, the t-th of each matrix. */
static void one_tile(Ahead *a, Buf *b, const Buf *first, const Buf *rest)
{
    read_tiles(a, b);
    buf_put(b, first->s, first->len);
    columns_twice(a, b, find_deep(a, b));
    buf_put(b, rest->s, rest->len);
}

/* ---- the same by 16 columns, where registers are few ---- */

static void read_slim(Ahead *a, Buf *b, const char *to, const char *step)
{
    for (int i = 0; i < a->n; i++) {
        Ref r = a->order[i];
        if (is_read(a, r))
            buf_printf(b, "ldmatrix(%s + 8192 * t + (row ^ 32 * %s), %s%u);\n",
                       tile_place(a->e, r), step, to, (unsigned)r);
    }
}

/* For each matrix that is read; a format of its number, as often as it wants.
 */
static void each_read(Ahead *a, Buf *b, const char *format)
{
    for (int i = 0; i < a->n; i++) {
        unsigned r = a->order[i];
        if (is_read(a, r))
            buf_printf(b, format, r, r);
    }
}

static void slim_columns(Ahead *a, Buf *b)
{
    bool swish = find_deep(a, b);
    for (int i = 0; i < a->n; i++) {
        unsigned x = swish_of(a, a->order[i]);
        if (x)
            buf_printf(b, "u32 half%u[4];\nhalve(half%u, in%u);\n", x, x, x);
    }
    columns_twice(a, b, swish);
}

/* The next columns are on their way while these are worked out; `often`: the
 * loop's text is repeated so. */
static void slim_tile(Ahead *a, Buf *b, const char *often, const Ref *r, int n)
{
    buf_printf(b, "const u32 row = fresh(tile_row(at, 0));\n");
    each_read(a, b, "u32 in%u[4];\n");
    read_slim(a, b, "in", "0");
    buf_printf(b, "%s for (int s = 0; s < 4; s++) {\n", often);
    each_read(a, b, "u32 next%u[4];\n");
    buf_printf(b, "if (s < 3) {\n");
    read_slim(a, b, "next", "(s + 1)");
    buf_printf(b, "}\n");
    for (int i = 0; i < n; i++)
        buf_printf(b, "u32 out%u[4];\n", (unsigned)r[i]);
    slim_columns(a, b);
    for (int i = 0; i < n; i++)
        buf_printf(b, "stmatrix(stage + TILE_%u + 8192 * t + (row ^ 32 * s), "
                   "out%u);\n", (unsigned)r[i], (unsigned)r[i]);
    buf_printf(b, "UNROLL for (int i = 0; i < 4 && s < 3; i++) {\n");
    each_read(a, b, "in%u[i] = next%u[i];\n");
    buf_printf(b, "}\n}\n");
}

void ahead_tiles(Ahead *a, Buf *b, int tiles, const Buf *first,
                 const Buf *rest)
{
    ahead_vectors(a, b, false);
    buf_printf(b, "NO_UNROLL ");
    buf_printf(b, tile_loop(a->e), tiles);
    buf_printf(b, " {\n");
    one_tile(a, b, first, rest);
    buf_printf(b, "}\n");
}

/* Whether r is 0 where its matrices are: rows past the end then need no care.
 * Only what cannot be infinite may be a factor. */
static bool ends_zero(const Ahead *a, Ref r)
{
    const Graph *g = a->e->g;
    r = strip(g, r);
    const Node *n = &g->n[r];
    if (n->op == OP_mul)
        for (int i = 0; i < 2; i++) {
            int other = g->n[strip(g, n->a[1 - i])].op;
            if ((other == OP_sigmoid || other == OP_cos || other == OP_sin)
                && ends_zero(a, n->a[i]))
                return true;
        }
    if (n->op == OP_add || n->op == OP_sub)
        return ends_zero(a, n->a[0]) && ends_zero(a, n->a[1]);
    return n->op == OP_rot90 ? ends_zero(a, n->a[0]) : n->op == OP_input;
}

/* Two-byte tiles alone are read. */
static bool is_slim(const Ahead *a)
{
    bool slim = true;
    for (int i = 0; i < a->n; i++)
        slim &= !is_read(a, a->order[i]) || !is_float(a->e, a->order[i]);
    return slim;
}

/* All tiles of what is long, a loop of half a tile. */
static void long_tiles(Ahead *a, Buf *b, const Ref *r, int n)
{
    ahead_vectors(a, b, false);
    buf_printf(b, "NO_UNROLL ");
    buf_printf(b, tile_loop(a->e), tile_count(a->e, r[0]));
    buf_printf(b, " {\n");
    slim_tile(a, b, "UNROLL_TWICE", r, n);
    buf_printf(b, "}\n");
}

static bool is_half(const Emit *e, Ref r)
{
    return e->team || (e->paired && tile_axis(e, r) != e->row_axis);
}

static Ahead visit_all(Emit *e, Buf *body, const Ref *r, int n, bool again)
{
    Ahead a = { .e = e, .b = body, .computed = true, .again = again };
    for (int i = 0; i < n; i++)
        ahead_visit(&a, r[i]);
    return a;
}

/* Whether the work for a column keeps a warp busy by itself: such text is not
 * repeated for each of a tile's, and takes few registers. */
static bool is_long(const Ahead *a)
{
    enum { LONG = 16 };
    return a->n >= LONG && is_slim(a);
}

/* Matrices from others, `n` of one width, all of their tiles or a half; rows
 * past the end are zero. */
static void some_matrices(Emit *e, Buf *b, const Ref *r, int n, bool again)
{
    Buf body = { .ctx = e->c }, first = body, rest = body;
    bool one = is_half(e, r[0]);
    Ahead a = visit_all(e, &body, r, n, again);
    a.slim = one ? is_slim(&a) : is_long(&a);
    ahead_elements(&a);
    buf_printf(b, "/*");
    for (int i = 0; i < n; i++) {
        unsigned m = r[i];
        buf_printf(b, " %%%u", m);
        buf_printf(&first, "u32 out%u[16];\n", m);
        for (int h = 0; h < 2; h++) {
            buf_printf(&body, "out%u[2 * n + %d] = ", m, h);
            if (!ends_zero(&a, r[i]))
                buf_printf(&body, "i%d >= rows ? 0 : ", h);
            buf_printf(&body, "pack(v%u_%d, v%u_%d);\n", m, 2 * h, m,
                       2 * h + 1);
        }
        buf_printf(&rest, "write_fragment(stage + TILE_%u + 8192 * t, out%u, "
                   "at);\n", m, m);
    }
    buf_printf(b, " */\n{\n");
    if (one) {
        ahead_vectors(&a, b, false);
        buf_printf(b, "const int t = fresh(%s);\n", e->team ? "member"
                   : "block");
        if (a.slim)
            slim_tile(&a, b, "UNROLL", r, n);
        else
            one_tile(&a, b, &first, &rest);
    } else if (a.slim) {
        long_tiles(&a, b, r, n);
    } else {
        ahead_tiles(&a, b, tile_count(e, r[0]), &first, &rest);
    }
    buf_printf(b, "}\n");
}

static bool is_asked(const Tile *t, int which)
{
    return t->computed && !t->anchor
        && (which == SCANNED ? t->scanned : t->gated == (which == EARLY));
}

/* How many of these are made together: registers are few. */
static int together(Emit *e, const Ref *r, int n, bool again)
{
    enum { FEW = 2 };
    int same = 1;
    while (same < n && tile_axis(e, r[same]) == tile_axis(e, r[0]))
        same++;
    if (same <= FEW || is_half(e, r[0]))
        return same < FEW ? same : FEW;
    Ahead a = visit_all(e, NULL, r, same, again);
    return is_long(&a) ? same : FEW;
}

/* Those next to each other and of one width are made together: what they
 * share is worked out once. */
void make_matrices(Emit *e, Buf *b, int which)
{
    Ref some[MAX_TILES];
    int n = 0, all = 0;
    for (int i = 0; i < e->ntiles; i++)
        if (is_asked(&e->tile[i], which))
            some[all++] = e->tile[i].r;
    for (int i = 0; i < all; i += n) {
        n = together(e, some + i, all - i, which == LATE);
        some_matrices(e, b, some + i, n, which == LATE);
    }
}

/* ---- who computes them ---- */

/* Made of columns one by one, and two tiles. */
static bool is_shared(const Emit *e, const Tile *t)
{
    return t->computed && tile_axis(e, t->r) != e->row_axis;
}

/* Nothing needs whole rows of a matrix, or another chunk's. */
static bool is_plain(const Emit *e)
{
    bool plain = !e->ngates && !e->nchains && !e->nkeys && e->ranks == 1
              && (!e->out->split || e->computed_scan);
    for (int i = 0; i < e->ntiles; i++) {
        const Tile *t = &e->tile[i];
        plain &= !t->gated && !t->dotted && !is_delayed(e, t->r);
    }
    return plain;
}

void find_pair(Emit *e)
{
    bool plain = is_plain(e);
    int shared = 0;
    for (int i = 0; i < e->ntiles; i++) {
        const Tile *t = &e->tile[i];
        plain &= !is_shared(e, t) || tile_count(e, t->r) == 2;
        shared += is_shared(e, t);
    }
    e->paired = plain && shared && e->groups == 1 && e->out->blocks == 2;
}

bool find_team(const Emit *e)
{
    bool plain = is_plain(e) && !e->inverse, computed = false;
    for (int i = 0; i < e->ntiles; i++) {
        const Tile *t = &e->tile[i];
        plain &= !t->computed || tile_count(e, t->r) == 2;
        computed |= t->computed;
    }
    return plain && computed && e->groups == 2 && !e->o->attempt;
}

bool is_half_loaded(const Emit *e, const Tile *t)
{
    return e->paired && !t->computed && !t->direct
        && tile_axis(e, t->r) != e->row_axis;
}

const char *remote_wait(void)
{
    return "wait(shared + 8 * pos.stage, pos.phase);\n";
}

void emit_remote(Emit *e, Buf *b, bool scan)
{
    int n = 0;
    if (!e->paired)
        return;
    buf_printf(b, "fence_async();\nwarpgroup_sync();\n"
               "if (at.thread == 0) {\n");
    for (int i = 0; i < e->nfirst && !scan; i++)
        buf_printf(b, "if (c == 0)\ngive(base + FIRST_%d, base + FIRST_%d + "
                   "%d, %d, shared + 8 * pos.stage);\n", i, i, FIRST_BYTES,
                   FIRST_BYTES);
    for (int i = 0; i < e->ntiles; i++) {
        const Tile *t = &e->tile[i];
        if (!is_shared(e, t) || (scan && !t->scanned))
            continue;
        buf_printf(b, "give(stage + TILE_%u + 8192 * block, stage + TILE_%u "
                   "+ 8192 * block, 8192, shared + 8 * pos.stage);\n",
                   (unsigned)t->r, (unsigned)t->r);
        n++;
    }
    buf_printf(b, "arrive_expecting(shared + 8 * pos.stage, %d",
               n * TILE_BYTES);
    if (e->nfirst && !scan)
        buf_printf(b, " + (c == 0 ? %d : 0)", FIRST_BYTES * e->nfirst);
    buf_printf(b, ");\n}\n");
}
