/* emit_gate.c -- gates per key, in the ahead warpgroup.
 *
 * The running sum of a gate along the chunk is kept in float32, a column by
 * one thread. It makes the decays of matrices, of the state's columns (keys),
 * and gdots: scores whose every product has a decay of its own.
 */
#include "ahead.h"

#include <string.h>

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

void ahead_line(Ahead *a, Buf *b, const char *often, Ref r)
{
    ahead_visit(a, r);
    ahead_elements(a);
    buf_printf(b, "const int k = %d * (at.lane%s);\n"
               "%s for (int n = 0; n < 16; n++) {\n"
               "const int i0 = 16 * at.warp + n;\n", a->line,
               a->e->joint ? " + 32 * at.team" : "", often);
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

/* Before what reads what a line above has written. */
static void meet(Emit *e, Buf *b)
{
    if (b->len)
        buf_printf(b, "%s", ahead_sync(e));
}

static void one_sum(Emit *e, Buf *b, int gate)
{
    Buf body = { .ctx = e->c };
    Ref of = e->gate[gate].of;
    Ahead a = { .e = e, .b = &body, .computed = true,
                .line = lane_columns(e, width(e, of)) };
    buf_printf(b, "/* the running sum of %%%u */\n{\nfloat sum[16][%d];\n",
               (unsigned)of, a.line);
    ahead_line(&a, b, "UNROLL", of);
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

/* Whether r is worked out from an argument per column. */
static bool reads_argument(const Emit *e, Ref r)
{
    r = strip(e->g, r);
    const Node *n = &e->g->n[r];
    bool reads = n->op == OP_input && is_keyed(e, r);
    for (int i = 0; i < 3 && is_entrywise(n); i++)
        reads = reads || (n->a[i] && reads_argument(e, n->a[i]));
    return reads;
}

static void load_keys(Emit *e, Buf *b)
{
    bool read = false;
    for (int i = 0; i < e->nkeys; i++)
        if (e->g->n[e->key[i]].op == OP_input)
            load_key(e, b, i);
    for (int i = 0; i < e->ngates; i++)
        read = read || reads_argument(e, e->gate[i].of);
    for (int i = 0; i < e->nchains; i++)
        read = read || reads_argument(e, e->g->n[e->chain[i].scan].a[1]);
    if (read)
        meet(e, b);
}

/* Arguments come first: all else is made of them. Then states of one axis and
 * gates' sums in the graph's order, since one may be made of another; gates
 * go to a text of their own where they take the others' place. */
void emit_sums(Emit *e, Buf *b, Buf *gates)
{
    load_keys(e, b);
    for (Ref r = 1, chains = 0; r < e->g->len; r++) {
        for (int i = 0; i < e->ngates; i++) {
            if (e->gate[i].of != r)
                continue;
            if (reads_sum(e, r, true) || reads_sum(e, r, false))
                meet(e, gates);
            one_sum(e, gates, i);
        }
        for (int i = 0; i < e->nchains; i++) {
            if (e->chain[i].scan != r)
                continue;
            if (chains++ || reads_sum(e, e->g->n[r].a[1], false))
                meet(e, b);
            one_chain(e, b, i);
        }
    }
}

void emit_keys(Emit *e, Buf *b)
{
    for (int i = 0; i < e->nkeys; i++) {
        Buf body = { .ctx = e->c };
        Ahead a = { .e = e, .b = &body, .computed = true, .scalar = true };
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
    return n > 1 || e->score[score].inverse || e->reuses;
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
static bool are_computed_together(Emit *e, Ref x, Ref y)
{
    return (left_of(e, x) == left_of(e, y) || right_of(e, x) == right_of(e, y))
        && is_before(e, x) == is_before(e, y) && gate_of(e, x) == gate_of(e, y);
}

/* Gdots that are made together, up to two, and their operands, alike ones once.
 */
typedef struct Batch {
    Gdot *d[2];
    Ref left[2], right[2];
    int n, lefts, rights, gate;
    bool before;
} Batch;

/* How many are made together: where two teams are at it, each has some. */
static int most_gdots(const Emit *e, const Gdots *all)
{
    return e->joint && all->n < 4 ? (all->n + 1) / 2 : 2;
}

/* The first that is not done, and one beside it; none: n is 0. */
static Batch next_batch(Emit *e, Gdots *all, int team)
{
    Batch t = { .n = 0 };
    for (int i = 0; i < all->n && t.n < most_gdots(e, all); i++) {
        Gdot *d = &all->at[i];
        if (d->done || (t.n && !are_computed_together(e, t.d[0]->r, d->r)))
            continue;
        d->done = true;
        d->team = team;
        t.left[t.n] = left_of(e, d->r);
        t.right[t.n] = right_of(e, d->r);
        t.d[t.n++] = d;
    }
    if (!t.n)
        return t;
    t.lefts = 1 + (t.n > 1 && t.left[0] != t.left[1]);
    t.rights = 1 + (t.n > 1 && t.right[0] != t.right[1]);
    t.gate = gate_of(e, t.d[0]->r);
    t.before = is_before(e, t.d[0]->r);
    return t;
}

/* Whether the same code makes both, told apart by places alone. */
static bool are_alike(const Emit *e, const Batch *x, const Batch *y)
{
    return x->n == y->n && x->lefts == y->lefts && x->rights == y->rights
        && width(e, x->right[0]) == width(e, y->right[0]);
}

static char *tile_text(Emit *e, Ref r, int gate)
{
    return gate < 0 ? ctx_format(e->c, "TILE_%u", (unsigned)r)
                    : ctx_format(e->c, "ANCHOR_%u_%d", (unsigned)r, gate);
}

/* x to the first team, y to the second. */
static char *either(Emit *e, const char *x, const char *y)
{
    return !strcmp(x, y) ? ctx_string(e->c, x)
                         : ctx_format(e->c, "(at.team ? %s : %s)", y, x);
}

/* anchored: decayed by each one's own gate. */
static void put_places(Emit *e, Buf *b, const Ref *x, const Ref *y, int n,
                       const Batch *anchored, const Batch *other)
{
    for (int i = 0; i < n; i++)
        buf_printf(b, "%sstage + %s", i ? ", " : "{ ", either(e,
            tile_text(e, x[i], anchored ? anchored->gate : -1),
            tile_text(e, y[i], anchored ? other->gate : -1)));
    buf_printf(b, " }, ");
}

/* y: what the other team makes meanwhile; x: there is none. Warps share code
 * then, and where they spill without. */
static void put_products(Emit *e, Buf *b, const Batch *x, const Batch *y)
{
    bool shared = x != y || e->o->attempt;
    buf_printf(b, "gated_products<%d, %d, %d, %d, %d>(dots%u, ",
               width(e, x->right[0]), x->before || y->before, x->lefts,
               x->rights, shared, (unsigned)x->d[0]->r);
    put_places(e, b, x->left, y->left, x->lefts, NULL, NULL);
    put_places(e, b, x->right, y->right, x->rights, NULL, NULL);
    put_places(e, b, x->right, y->right, x->rights, x, y);
    buf_printf(b, "scratch + %s, %s, at);\n",
               either(e, ctx_format(e->c, "GATE_%d", x->gate),
                      ctx_format(e->c, "GATE_%d", y->gate)),
               either(e, x->before ? "1" : "0", y->before ? "1" : "0"));
}

/* Where the products of t are, which are made as those of `as`. */
static void name_dots(Buf *b, const Batch *t, const Batch *as)
{
    for (int i = 0; i < t->n; i++)
        buf_printf(b, "float (&dot%u)[32] = dots%u[%d];\n",
                   (unsigned)t->d[i]->r, (unsigned)as->d[0]->r, i);
}

static int team_of(const Gdots *all, int score)
{
    int team = 0;
    for (int i = 0; i < all->n; i++)
        if (all->at[i].score == score)
            team = all->at[i].team;
    return team;
}

/* A score whose products are there, by the team that has them. */
static void finish_gdots(Emit *e, Buf *b, const Gdots *all, int score)
{
    begin_team(e, b, team_of(all, score));
    buf_printf(b, "/* %%%u */\n{\n", (unsigned)e->score[score].root);
    for (int i = 0; i < all->n; i++)
        if (all->at[i].score == score)
            add_first(e, b, all->at[i].r);
    finish_score(e, b, score);
    buf_printf(b, "}\n");
    end_team(e, b);
}

static void finish_batch(Emit *e, Buf *b, const Gdots *all, const Batch *t)
{
    for (int i = 0; i < t->n; i++)
        if (!is_kept(e, all, t->d[i]->score))
            finish_gdots(e, b, all, t->d[i]->score);
}

static void one_batch(Emit *e, Buf *b, const Gdots *all, const Batch *t)
{
    buf_printf(b, "float dots%u[%d][32];\n", (unsigned)t->d[0]->r, t->n);
    name_dots(b, t, t);
    begin_team(e, b, t->d[0]->team);
    put_products(e, b, t, t);
    end_team(e, b);
    finish_batch(e, b, all, t);
}

/* Both teams at once: there is one text for both, if that can be. */
static void two_batches(Emit *e, Buf *b, const Gdots *all, const Batch *x,
                        const Batch *y)
{
    if (!y->n || !are_alike(e, x, y)) {
        one_batch(e, b, all, x);
        if (y->n)
            one_batch(e, b, all, y);
        return;
    }
    buf_printf(b, "float dots%u[%d][32];\n", (unsigned)x->d[0]->r, x->n);
    name_dots(b, x, x);
    name_dots(b, y, x);
    put_products(e, b, x, y);
    finish_batch(e, b, all, x);
    finish_batch(e, b, all, y);
}

/* Of the scores whose products are kept: those to be inverted go to `last`. */
static void finish_kept(Emit *e, Buf *b, Buf *last, const Gdots *all)
{
    for (int i = 0; i < e->nscores; i++) {
        Buf *to = e->reuses && !e->score[i].inverse ? b : last;
        if (!has_gdot(e, e->score[i].root) || !is_kept(e, all, i))
            continue;
        finish_gdots(e, to, all, i);
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
    for (;;) {
        Batch x = next_batch(e, &all, 0), y = { .n = 0 };
        if (!x.n)
            break;
        if (e->joint)
            y = next_batch(e, &all, 1);
        two_batches(e, b, &all, &x, &y);
    }
    if (e->reuses)
        buf_printf(b, "%s", ahead_sync(e));
    finish_kept(e, b, last, &all);
}
