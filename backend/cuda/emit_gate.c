/* emit_gate.c -- gates per key, in the ahead warpgroup.
 *
 * The running sum of a gate along the chunk is kept in float32, a column by
 * one thread. It makes the decays of matrices, of the state's columns (keys),
 * and gdots: scores whose every product has a decay of its own.
 */
#include "ahead.h"

static int width(const Emit *e, Ref r)
{
    return padded(e->g->axis[tile_axis(e, r)].size);
}

static const Node *gdot_of(const Emit *e, Ref r)
{
    return &e->g->n[r];
}

static int gate_of(Emit *e, Ref gdot)
{
    return use_gate(e, strip(e->g, gdot_of(e, gdot)->a[3]));
}

static void check_gdot(Emit *e, Ref r)
{
    const Node *n = gdot_of(e, r);
    Ref a = strip(e->g, n->a[0]);
    Ref ga = strip(e->g, n->a[2]), gb = strip(e->g, n->a[3]);
    bool sums = e->g->n[ga].op == OP_cumsum && e->g->n[gb].op == OP_cumsum;
    if (!is_matrix(e, a) || n->over != AXIS(tile_axis(e, a))
        || tile_axis(e, a) == e->row_axis)
        no_place(e, r, "scores contract one axis, not the state's rows");
    if (!sums || e->g->n[gb].flags & EXCLUSIVE
        || use_gate(e, ga) != use_gate(e, gb))
        no_place(e, r, "gates that are not sums of the same along the chunk");
}

void find_gdots(Emit *e, Ref r)
{
    const Node *n = &e->g->n[r];
    if (!is_score(e, r))
        return;
    if (n->op == OP_gdot) {
        check_gdot(e, r);
        use_gated(e, n->a[0]);
        use_anchor(e, n->a[1], gate_of(e, r));
    }
    for (int i = 0; i < 2 && n->a[i] && n->op != OP_gdot; i++)
        find_gdots(e, n->a[i]);
}

/* ---- running sums ---- */

void ahead_line(Ahead *a, Buf *b, Ref r)
{
    ahead_visit(a, r);
    ahead_elements(a);
    buf_printf(b, "const int k = %d * (at.lane%s);\n"
               "UNROLL for (int n = 0; n < 16; n++) {\n"
               "const int i0 = 16 * at.warp + n;\n", a->line,
               a->e->joint ? " + 32 * at.team" : "");
    ahead_vectors(a, b, false);
    for (int i = 0; i < a->n; i++)
        if (is_tile(a->e, a->order[i]))
            buf_printf(b, is_float(a->e, a->order[i])
                       ? "float in%u[%d];\nread_line(in%u, %s, i0, k);\n"
                       : "u32 in%u[%d / 2];\nread_line(in%u, %s, i0, k);\n",
                       (unsigned)a->order[i], a->line, (unsigned)a->order[i],
                       tile_place(a->e, a->order[i]));
    buf_put(b, a->b->s, a->b->len);
}

static void one_sum(Emit *e, Buf *b, int gate)
{
    Buf body = { .ctx = e->c };
    Ref of = e->gate[gate].of;
    Ahead a = { .e = e, .b = &body, .made = true,
                .line = lane_columns(e, width(e, of)) };
    buf_printf(b, "/* the running sum of %%%u */\n{\nfloat sum[16][%d];\n",
               (unsigned)of, a.line);
    ahead_line(&a, b, of);
    for (int el = 0; el < a.line; el++)
        buf_printf(b, "sum[n][%d] = i0 < rows ? v%u_%d : 0.f;\n", el,
                   (unsigned)of, el);
    buf_printf(b, "}\nrunning_rows<%d>(sum, scratch + GATE_%d + 4 * fresh(k), "
               "at);\n}\n", width(e, of), gate);
}

static bool is_sum(const Ahead *a, Ref r)
{
    int op = a->e->g->n[r].op;
    return op == OP_cumsum || op == OP_last || op == OP_scan
        || (op == OP_delay && !is_tile(a->e, r));
}

/* A sum's row 0 is before the first token: an exclusive one is a row up. */
static void sum_address(Ahead *a, Ref r, int half)
{
    Emit *e = a->e;
    const Node *n = &e->g->n[r];
    Ref sum = summed(e, r);
    bool chain = is_chain(e, sum);
    buf_printf(a->b, "gate_row<%d>(scratch + %s_%d, ", width(e, r),
               chain ? "CHAIN" : "GATE",
               chain ? use_chain(e, sum) : use_gate(e, sum));
    if (n->op == OP_last)
        buf_printf(a->b, chain ? "rows" : "64");
    else
        buf_printf(a->b, "i%d%s", half, n->flags & EXCLUSIVE
                   || n->op == OP_delay ? "" : " + 1");
    buf_printf(a->b, ")");
}

void gate_pair(Ahead *a, Ref r)
{
    if (!is_sum(a, r) || a->scalar || a->line)
        return;
    for (int half = 0; half < 2; half++) {
        buf_printf(a->b, "const float2 sum%u_%d = load2(", (unsigned)r, half);
        sum_address(a, r, half);
        buf_printf(a->b, " + 4 * k0);\n");
    }
}

void gate_text(Ahead *a, Ref r, int el)
{
    if (!a->scalar && !a->line) {
        buf_printf(a->b, "sum%u_%d.%c", (unsigned)r, el >> 1, "xy"[el & 1]);
        return;
    }
    buf_printf(a->b, "load1(");
    sum_address(a, r, 0);
    buf_printf(a->b, " + 4 * (k + %d))", el);
}

void key_text(Ahead *a, Ref r, int el)
{
    int key = use_key(a->e, r);
    if (a->scalar || a->line)
        buf_printf(a->b, "load1(vectors + KEY_%d + 4 * (k + %d))", key, el);
    else
        buf_printf(a->b, "load1(vectors + KEY_%d + 4 * (k0 + %d))", key,
                   el & 1);
}

/* An argument per column. */
static void load_key(Emit *e, Buf *b, int key)
{
    Ref r = e->key[key];
    int bytes, at = ahead_tensor(e, r, vector_arg(e, r, &bytes));
    buf_printf(b, "/* %%%u */\nif (at.thread < %d) {\n"
               "const int k = at.thread;\n"
               "store1(vectors + KEY_%d + 4 * k, k < %d ? column<%d>("
               "a.tensor[%d], head, k) : 0.f);\n}\n", (unsigned)r,
               width(e, r), key, (int)e->g->axis[tile_axis(e, r)].size,
               bytes, at);
}

/* Arguments come first: matrices are made of them. */
void emit_sums(Emit *e, Buf *b)
{
    for (int i = 0; i < e->ngates; i++)
        one_sum(e, b, i);
    for (int i = 0; i < e->nkeys; i++)
        if (e->g->n[e->key[i]].op == OP_input)
            load_key(e, b, i);
}

void emit_keys(Emit *e, Buf *b)
{
    for (int i = 0; i < e->nkeys; i++) {
        Buf body = { .ctx = e->c };
        Ahead a = { .e = e, .b = &body, .made = true, .scalar = true };
        Ref r = e->key[i];
        if (e->g->n[r].op == OP_input)
            continue;
        ahead_visit(&a, r);
        ahead_elements(&a);
        buf_printf(b, "/* %%%u */\nif (at.thread < %d) {\n"
                   "const int k = at.thread;\n", (unsigned)r,
                   width(e, r));
        ahead_vectors(&a, b, false);
        buf_put(b, body.s, body.len);
        buf_printf(b, "store1(vectors + KEY_%d + 4 * k, v%u_0);\n}\n", i,
                   (unsigned)r);
    }
}

/* ---- gdot ---- */

void emit_anchors(Emit *e, Buf *b)
{
    for (int i = 0; i < e->ntiles; i++) {
        const Tile *t = &e->tile[i];
        if (!t->anchor)
            continue;
        buf_printf(b, "UNROLL ");
        buf_printf(b, tile_loop(e), tile_count(e, t->r));
        buf_printf(b, "\nanchor_rows<%d>(stage + ANCHOR_%u_%d + 8192 * t, "
                   "stage + TILE_%u + 8192 * t, scratch + GATE_%d + 256 * t, "
                   "at);\n", width(e, t->r), (unsigned)t->r, t->gate,
                   (unsigned)t->r, t->gate);
    }
}

/* What is below the scores: which gdot is whose. */
typedef struct Gdot { Ref r; int score, team; bool done; } Gdot;
typedef struct Gdots { Gdot at[2 * MAX_SCORES]; int n; } Gdots;

static void gather(Emit *e, Gdots *all, Ref r, int score)
{
    const Node *n = &e->g->n[r];
    if (!is_score(e, r))
        return;
    if (n->op == OP_dot && has_gdot(e, e->score[score].root))
        no_place(e, r, "a product with gates per key and one without in one"
                 " matrix");
    if (n->op == OP_gdot) {
        if (all->n == 2 * MAX_SCORES)
            no_place(e, r, "too many products with gates per key");
        all->at[all->n++] = (Gdot){ .r = r, .score = score };
        return;
    }
    for (int i = 0; i < 3; i++)
        if (n->a[i])
            gather(e, all, n->a[i], score);
}

/* A score whose products are not all made at once, or that is inverted, or
 * takes a place that gdots read, keeps them in registers. */
static bool is_kept(const Emit *e, const Gdots *all, int score)
{
    int n = 0;
    for (int i = 0; i < all->n; i++)
        n += all->at[i].score == score;
    return n > 1 || e->score[score].inverse || e->spares;
}

static Ref left_of(Emit *e, Ref gdot)
{
    return strip(e->g, gdot_of(e, gdot)->a[0]);
}

static Ref right_of(Emit *e, Ref gdot)
{
    return strip(e->g, gdot_of(e, gdot)->a[1]);
}

/* Of the left operand: the sums of the token before. */
static bool is_before(Emit *e, Ref gdot)
{
    Ref sum = strip(e->g, gdot_of(e, gdot)->a[2]);
    return e->g->n[sum].flags & EXCLUSIVE;
}

/* Whether two share their decays, and one operand: what that is made into is
 * made once. */
static bool are_made_together(Emit *e, Ref x, Ref y)
{
    return (left_of(e, x) == left_of(e, y) || right_of(e, x) == right_of(e, y))
        && is_before(e, x) == is_before(e, y) && gate_of(e, x) == gate_of(e, y);
}

static void put_places(Buf *b, const char *fmt, const Ref *r, int n, int gate)
{
    buf_printf(b, "{ ");
    for (int i = 0; i < n; i++) {
        buf_printf(b, i ? ", stage + " : "stage + ");
        buf_printf(b, fmt, (unsigned)r[i], gate);
    }
    buf_printf(b, " }, ");
}

/* Up to two. */
static void some_gdots(Emit *e, Buf *b, Gdot *const *d, int n)
{
    Ref first = d[0]->r, last = d[n - 1]->r;
    Ref left[] = { left_of(e, first), left_of(e, last) };
    Ref right[] = { right_of(e, first), right_of(e, last) };
    int gate = gate_of(e, first);
    int lefts = 1 + (left[0] != left[1]), rights = 1 + (right[0] != right[1]);
    buf_printf(b, "float dots%u[%d][32];\ngated_products<%d, %d, %d, %d>("
               "dots%u, ", (unsigned)first, n, width(e, right[0]),
               is_before(e, first), lefts, rights, (unsigned)first);
    put_places(b, "TILE_%u", left, lefts, gate);
    put_places(b, "TILE_%u", right, rights, gate);
    put_places(b, "ANCHOR_%u_%d", right, rights, gate);
    buf_printf(b, "scratch + GATE_%d, at);\n", gate);
}

static void take_dots(Emit *e, Buf *b, const Gdots *all, Gdot *const *d,
                      int n)
{
    for (int i = 0; i < n; i++) {
        unsigned r = d[i]->r, from = d[0]->r;
        if (!is_kept(e, all, d[i]->score))
            buf_printf(b, "const float (&dot%u)[32] = dots%u[%d];\n", r, from,
                       i);
        else
            buf_printf(b, "UNROLL for (int n = 0; n < 32; n++)\n"
                       "dot%u[n] = dots%u[%d][n];\n", r, from, i);
    }
}

/* How many are made together: where two teams are at it, each has some. */
static int most_gdots(const Emit *e, const Gdots *all)
{
    return e->joint && all->n < 4 ? (all->n + 1) / 2 : 2;
}

static void gdots_of(Emit *e, Buf *b, Gdots *all, int first, int team)
{
    Gdot *d[2];
    int n = 0;
    for (int i = first; i < all->n && n < most_gdots(e, all); i++)
        if (!all->at[i].done && are_made_together(e, all->at[first].r,
                                                   all->at[i].r))
            d[n++] = &all->at[i];
    buf_printf(b, "{\n");
    some_gdots(e, b, d, n);
    take_dots(e, b, all, d, n);
    for (int i = 0; i < n; i++) {
        d[i]->done = true;
        d[i]->team = team;
        if (is_kept(e, all, d[i]->score))
            continue;
        buf_printf(b, "/* %%%u */\n{\n",
                   (unsigned)e->score[d[i]->score].root);
        finish_score(e, b, d[i]->score);
        buf_printf(b, "}\n");
    }
    buf_printf(b, "}\n");
}

static int team_of(const Gdots *all, int score)
{
    int team = 0;
    for (int i = 0; i < all->n; i++)
        if (all->at[i].score == score)
            team = all->at[i].team;
    return team;
}

/* Of the scores whose products are kept: those to be inverted go to `last`. */
static void finish_kept(Emit *e, Buf *b, Buf *last, const Gdots *all)
{
    for (int i = 0; i < e->nscores; i++) {
        Buf *to = e->spares && !e->score[i].inverse ? b : last;
        if (!has_gdot(e, e->score[i].root) || !is_kept(e, all, i))
            continue;
        begin_team(e, to, team_of(all, i));
        buf_printf(to, "/* %%%u */\n{\n", (unsigned)e->score[i].root);
        finish_score(e, to, i);
        buf_printf(to, "}\n");
        end_team(e, to);
        if (e->joint && e->score[i].inverse)
            buf_printf(to, "else\nbeside_invert();\n");
    }
}

void emit_gdots(Emit *e, Buf *b, Buf *last)
{
    Gdots all = { .n = 0 };
    for (int i = 0; i < e->nscores; i++)
        if (has_gdot(e, e->score[i].root))
            gather(e, &all, e->score[i].root, i);
    for (int i = 0; i < all.n; i++)
        if (is_kept(e, &all, all.at[i].score))
            buf_printf(b, "float dot%u[32];\n", (unsigned)all.at[i].r);
    for (int i = 0, team = 0; i < all.n; i++) {
        if (all.at[i].done)
            continue;
        begin_team(e, b, team);
        gdots_of(e, b, &all, i, team);
        end_team(e, b);
        team ^= 1;
    }
    if (e->spares)
        buf_printf(b, "%s", ahead_sync(e));
    finish_kept(e, b, last, &all);
}
