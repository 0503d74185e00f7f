/* emit_first.c -- scores of what is computed, in the first rows of a sequence.
 *
 * A matrix that is made (turned by angles, say) is rounded to the tiles' type
 * before its products, and scores cancel. Further on a row of the result adds
 * up so many of them that their errors even out; in a sequence's first rows
 * nothing does. So for the first 16 rows of a sequence, once, the ahead
 * warpgroup keeps of each such matrix also what its rounding cuts off, and
 * adds the products of that: scores as of operands in two parts. The cuts lie
 * where the scores will.
 *
 * Gates per key cancel where a row meets itself, and the first token has no
 * other score: there the product of such matrices is worked out in float32, as
 * they are made, and takes the diagonal's place.
 */
#include "ahead.h"

/* A product's operand that is made, and rounded. */
static bool is_rounded(const Emit *e, Ref r)
{
    return !is_tile(e, r) || is_float(e, r);
}

static void find_cut(Emit *e, Ref r)
{
    if (is_rounded(e, r) && cut_of(e, r) < 0 && e->ncuts < MAX_CUTS
        && e->ncuts < 2 * e->nscores)
        e->cut[e->ncuts++] = strip(e->g, r);
}

int cut_of(const Emit *e, Ref r)
{
    for (int i = 0; i < e->ncuts; i++)
        if (e->cut[i] == strip(e->g, r))
            return i;
    return -1;
}

static void find_dot(Emit *e, Ref r)
{
    const Node *n = &e->g->n[r];
    First f = { .dot = r };
    int row = e->g->n[n->a[0]].axes & AXIS(AX_J) ? 1 : 0;
    for (int i = 0; i < 2; i++) {
        Product p;
        peel(e, n->a[i ? 1 - row : row], &p);
        if (!p.core || !is_matrix(e, p.core))
            return;                     /* refused where it is issued */
        find_cut(e, p.core);
        f.side[i] = p.core;
    }
    if (cut_of(e, f.side[0]) >= 0 || cut_of(e, f.side[1]) >= 0)
        e->first[e->nfirst++] = f;
}

/* One of a matrix that is made, where gates cancel on the diagonal. */
static void find_gdot(Emit *e, Ref r)
{
    const Node *n = &e->g->n[r];
    First f = { .dot = r };
    for (int i = 0; i < 2; i++)
        f.side[i] = strip(e->g, n->a[i]);
    bool cancel = strip(e->g, n->a[2]) == strip(e->g, n->a[3])
               && !(n->flags & STRICT);
    if (cancel && (is_rounded(e, f.side[0]) || is_rounded(e, f.side[1])))
        e->first[e->nfirst++] = f;
}

static void find_below(Emit *e, Ref r, bool gated)
{
    const Node *n = &e->g->n[r];
    if (!is_score(e, r) || e->nfirst == MAX_FIRST || first_of(e, r) >= 0)
        return;
    if (n->op == OP_gdot)
        find_gdot(e, r);
    else if (n->op == OP_dot && !gated)
        find_dot(e, r);
    for (int i = 0; i < 3 && n->op != OP_gdot && n->op != OP_dot; i++)
        if (n->a[i])
            find_below(e, n->a[i], gated);
}

int first_of(const Emit *e, Ref dot)
{
    for (int i = 0; i < e->nfirst; i++)
        if (e->first[i].dot == dot)
            return i;
    return -1;
}

/* Beside gdots there is no place for cuts: a score may come where their
 * operands are. */
void find_first(Emit *e)
{
    bool can = e->o->tile == BF16 && e->ranks == 1, gated = false;
    for (int i = 0; i < e->nscores; i++)
        gated |= has_gdot(e, e->score[i].root);
    for (int i = 0; i < e->nscores && can; i++)
        find_below(e, e->score[i].root, gated);
}

static bool is_gated(const Emit *e)
{
    return e->nfirst && e->g->n[e->first[0].dot].op == OP_gdot;
}

/* ---- text ---- */

static void read_step(Ahead *a, Buf *b)
{
    for (int i = 0; i < a->n; i++) {
        Ref r = a->order[i];
        unsigned n = r;
        if (!is_tile(a->e, r))
            continue;
        buf_printf(b, is_float(a->e, r) ? "float in%u[4];\n"
                   : "u32 in%u[2];\n", n);
        buf_printf(b, "read_step(in%u, %s, i0, k0);\n", n,
                   tile_place(a->e, r));
    }
}

/* The warps share the columns, eight at a time; a's elements go by these. */
static void by_steps(Ahead *a, Buf *b, int tiles)
{
    const Emit *e = a->e;
    const char *other = e->team ? " + 4 * member"
                      : e->joint ? " + 4 * at.team" : "";
    bool swish = false;
    for (int i = 0; i < a->n; i++)
        swish |= swish_of(a, a->order[i]) != 0;
    ahead_vectors(a, b, false);
    buf_printf(b, "NO_UNROLL for (int n = fresh(at.warp)%s; n < %d; n += %d) "
               "{\n"
               "const int k0 = 8 * n%s + at.col;\n%s",
               other, e->paired ? 8 : 8 * tiles, *other ? 8 : 4,
               e->paired ? " + 64 * block" : "",
               swish ? "constexpr bool DEEP = 1;\n" : "");
    read_step(a, b);
    buf_put(b, a->b->s, a->b->len);
    buf_printf(b, "}\n");
}

/* The cuts of matrices of one axis. */
static void some_cuts(Emit *e, Buf *b, int axis)
{
    Buf body = { .ctx = e->c };
    Ahead a = { .e = e, .b = &body, .computed = true, .step = true };
    for (int i = 0; i < e->ncuts; i++)
        if (tile_axis(e, e->cut[i]) == axis)
            ahead_visit(&a, e->cut[i]);
    ahead_elements(&a);
    for (int i = 0; i < e->ncuts; i++)
        for (int h = 0; h < 2 && tile_axis(e, e->cut[i]) == axis; h++)
            buf_printf(&body, "store_cut(stage + CUT_%d, i%d, k0, i%d < rows,"
                       " v%u_%d, v%u_%d);\n", i, h, h, (unsigned)e->cut[i],
                       2 * h, (unsigned)e->cut[i], 2 * h + 1);
    by_steps(&a, b, padded(e->g->axis[axis].size) / ROWS);
}

/* What each warp has of a product's diagonal. */
static void one_diagonal(Emit *e, Buf *b, int at)
{
    Buf body = { .ctx = e->c };
    Ahead a = { .e = e, .b = &body, .computed = true, .step = true };
    const First *f = &e->first[at];
    for (int i = 0; i < 2; i++)
        ahead_visit(&a, f->side[i]);
    ahead_elements(&a);
    for (int el = 0; el < 4; el++)
        buf_printf(&body, "sum%d += v%u_%d * v%u_%d;\n", el / 2,
                   (unsigned)f->side[0], el, (unsigned)f->side[1], el);
    buf_printf(b, "{\nfloat sum0 = 0, sum1 = 0;\n");
    by_steps(&a, b, tile_count(e, f->side[0]));
    for (int h = 0; h < 2; h++)
        buf_printf(b, "store_row(base + FIRST_%d + 64 * (at.warp%s) + 4 * i%d,"
                   " sum%d, at);\n", at, e->joint ? " + 4 * at.team" : "", h,
                   h);
    buf_printf(b, "}\n");
}

/* Of the first 16 rows; then all meet, as what these are made of may go. */
static void put_first_rows(const Emit *e, Buf *b, const Buf *acts)
{
    if (acts->len)
        buf_printf(b, "if (c == 0) {\n{\n"
                   "const int i0 = fresh(at.lane) >> 2, i1 = i0 + 8;\n"
                   "%s}\n%s}\n", acts->s, ahead_sync(e));
}

void emit_diagonals(Emit *e, Buf *b)
{
    Buf acts = { .ctx = e->c };
    for (int i = 0; i < e->nfirst && is_gated(e); i++)
        one_diagonal(e, &acts, i);
    put_first_rows(e, b, &acts);
}

void emit_cuts(Emit *e, Buf *b)
{
    Buf acts = { .ctx = e->c };
    for (int axis = AX_DIM; axis < NAXES; axis++) {
        bool has = false;
        for (int i = 0; i < e->ncuts; i++)
            has |= tile_axis(e, e->cut[i]) == axis;
        if (has)
            some_cuts(e, &acts, axis);
    }
    put_first_rows(e, b, &acts);
}

static char *cut_text(Emit *e, Ref r)
{
    int cut = cut_of(e, r);
    return cut < 0 ? ctx_string(e->c, "0")
                   : ctx_format(e->c, "stage + CUT_%d", cut);
}

/* Which of its sides are cut, and how long its sum is. */
static int shape_of(const Emit *e, const First *f)
{
    return 2 * (cut_of(e, f->side[0]) >= 0) + (cut_of(e, f->side[1]) >= 0)
         + 4 * tile_count(e, f->side[0]);
}

/* Where the warp's product has a side's tiles, and what is cut off. */
static void side_text(Emit *e, Buf *b, int from, int to, int side)
{
    for (int cut = 0; cut < 2; cut++) {
        for (int i = from; i < to; i++) {
            Ref r = e->first[i].side[side];
            if (i < to - 1)
                buf_printf(b, "at.warp == %d ? ", i);
            if (cut)
                buf_printf(b, "%s", cut_text(e, r));
            else
                buf_printf(b, "stage + TILE_%u", (unsigned)strip(e->g, r));
            buf_printf(b, i < to - 1 ? " : " : ", ");
        }
    }
}

/* A product a warp: those of one shape are one text. */
void emit_first(Emit *e, Buf *b)
{
    const char *alone = e->team ? " && member == 0" : "";
    if (!e->nfirst || is_gated(e))
        return;
    buf_printf(b, "if (c == 0) {\n%s", ahead_sync(e));
    for (int i = 0, to; i < e->nfirst; i = to) {
        int shape = shape_of(e, &e->first[i]);
        for (to = i + 1; to < e->nfirst
             && shape_of(e, &e->first[to]) == shape; )
            to++;
        if (to - i > 1)
            buf_printf(b, "if (at.warp >= %d && at.warp < %d%s)\n", i, to,
                       alone);
        else
            buf_printf(b, "if (at.warp == %d%s)\n", i, alone);
        buf_printf(b, "first_products<%d, %d>(base + FIRST_%d", shape >> 1 & 1,
                   shape & 1, i);
        if (to - i > 1)
            buf_printf(b, " + %d * (at.warp - %d)", FIRST_BYTES
                       * (e->paired ? 2 : 1), i);
        buf_printf(b, ", ");
        for (int side = 0; side < 2; side++)
            side_text(e, b, i, to, side);
        if (e->paired)
            buf_printf(b, "64 * block, 64 * block + 64, at);\n");
        else
            buf_printf(b, "0, %d, at);\n", ROWS * (shape / 4));
    }
    buf_printf(b, "}\n");
}

void add_first(Emit *e, Buf *b, Ref dot)
{
    unsigned r = dot;
    int at = first_of(e, dot);
    if (at >= 0 && is_gated(e))
        buf_printf(b, "if (c == 0 && at.warp == 0)\nput_diagonal<%d>(dot%u, "
                   "base + FIRST_%d, at);\n", e->joint ? 8 : 4, r, at);
    else if (at >= 0)
        buf_printf(b, "if (c == 0 && at.warp == 0%s)\nadd_first<PAIRED>("
                   "dot%u, base + FIRST_%d, at);\n", e->team
                   ? " && member == 0" : "", r, at);
}
