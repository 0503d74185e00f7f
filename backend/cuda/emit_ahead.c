/* emit_ahead.c -- the warpgroup that runs ahead: matrices that are computed.
 *
 * Those of tokens and one axis, tile by tile from loaded ones
 * (emit_computed.c); emit_gate.c holds what gates per key add. Then the token
 * by token ones: a fragment of 64 rows (i) and 64 columns (j) in registers,
 * products of two matrices of the stage, then the element-wise nodes above them
 * one after the other, eight columns at a time. Either is packed and written to
 * the stage.
 */
#include "ahead.h"

#include <string.h>

static bool is_part(const Ahead *a, Ref r)
{
    return a->computed ? is_matrix(a->e, r) || is_keyed(a->e, r)
                   : is_score(a->e, r);
}

bool is_there(const Ahead *a, Ref r)
{
    return a->again && computed_before(a->e, r) >= 0;
}

void ahead_visit(Ahead *a, Ref r)
{
    r = a->computed ? strip(a->e->g, r) : r;
    const Node *n = &a->e->g->n[r];
    if (!a->seen)
        a->seen = ctx_alloc(a->e->c, a->e->g->len);
    if (a->seen[r] || !is_part(a, r))
        return;
    a->seen[r] = 1;
    if (is_there(a, r)) {
        a->order[a->n++] = r;
        return;
    }
    if (is_entrywise(n))
        for (int i = 0; i < 3; i++)
            if (n->a[i])
                ahead_visit(a, n->a[i]);
    if (n->op == OP_rot90)
        ahead_visit(a, n->a[0]);
    bool sums = a->computed && (n->op == OP_cumsum || n->op == OP_last
                            || n->op == OP_scan || n->op == OP_dup
                            || n->op == OP_rot90 || n->op == OP_delay
                            || is_tile(a->e, r));
    if (n->op != OP_dot && n->op != OP_dmask && n->op != OP_input
        && n->op != OP_gdot && !sums && !is_entrywise(n))
        no_place(a->e, r, "this operation on a token by token matrix");
    if (a->n == 256)
        no_place(a->e, r, "too long an expression");
    a->order[a->n++] = r;
}

bool has_col(const Emit *e, Ref r)
{
    return (e->g->n[r].axes & AXIS(AX_J)) != 0;
}

/* ---- vectors: which are read as rows, as columns, as one value ---- */

static int vector_use(Ahead *a, Ref r, bool col, bool log2)
{
    int p = publish_one(a->e, r, log2);
    uint64_t bit = (uint64_t)1 << p;
    if (!is_token(a->e, r))
        a->one |= bit;
    else if (col)
        a->col |= bit;
    else
        a->row |= bit;
    return p;
}

char *vector_name(Ahead *a, Ref r, bool col, int el, bool log2)
{
    int p = vector_use(a, r, col, log2);
    const char *name = a->e->pub[p].name;
    if (!is_token(a->e, r))
        return ctx_format(a->e->c, "one_%s", name);
    if (col)
        return ctx_format(a->e->c, "col_%s.%c", name, "xy"[el & 1]);
    return ctx_format(a->e->c, "row_%s_%d", name, a->line ? 0 : el >> 1);
}

static char *operand_name(Ahead *a, Ref r, int el)
{
    Buf t = { .ctx = a->e->c };
    if (a->computed)
        r = strip(a->e->g, r);
    if (a->e->g->n[r].op == OP_num)
        number_text(&t, a->e->g->n[r].num);
    else if (is_part(a, r))
        buf_printf(&t, "v%u_%d", (unsigned)r, el);
    else
        return vector_name(a, r, has_col(a->e, r), el, false);
    return t.s;
}

/* ---- one node, one element ---- */

Ref swish_of(const Ahead *a, Ref r)
{
    const Graph *g = a->e->g;
    if (!a->computed || a->line || a->scalar || g->n[r].op != OP_mul
        || is_there(a, r))
        return 0;
    for (int i = 0; i < 2; i++) {
        Ref x = strip(g, g->n[r].a[i]), s = strip(g, g->n[r].a[1 - i]);
        if (g->n[s].op == OP_sigmoid && strip(g, g->n[s].a[0]) == x
            && is_tile(a->e, x) && !is_float(a->e, x))
            return x;
    }
    return 0;
}

static void product_text(Ahead *a, Ref r, int el)
{
    Emit *e = a->e;
    const Node *n = &e->g->n[r];
    Product p[2];
    for (int i = 0; i < 2; i++)
        peel(e, n->a[i], &p[i]);
    buf_printf(a->b, "%sdot%u[4 * n + %d]", p[0].negative != p[1].negative
               ? "-" : "", (unsigned)r, el);
    for (int i = 0; i < 2; i++) {
        p[i].negative = false;
        bool col = has_col(e, n->a[i]);
        for (int t = 0; t < 2; t++) {
            int at = publish(e, &p[i], t, false);
            if (at < 0)
                continue;
            *(t ? col ? &a->col : &a->row : &a->one) |= (uint64_t)1 << at;
            const char *name = e->pub[at].name;
            if (!t)
                buf_printf(a->b, " * one_%s", name);
            else if (col)
                buf_printf(a->b, " * col_%s.%c", name, "xy"[el & 1]);
            else
                buf_printf(a->b, " * row_%s_%d", name, el >> 1);
        }
    }
}

static void input_text(Ahead *a, Ref r, int el)
{
    bool alone = a->line || a->step;
    if (is_keyed(a->e, r))
        key_text(a, r, el);
    else if (is_float(a->e, r))
        buf_printf(a->b, "in%u[%s%d]", (unsigned)r, alone ? "" : "4 * n + ",
                   el);
    else
        buf_printf(a->b, "%s(in%u[%s%d])", el & 1 ? "high" : "low",
                   (unsigned)r, alone ? "" : "2 * n + ", el >> 1);
}

static void element_text(Ahead *a, Ref r, int el)
{
    Emit *e = a->e;
    const Node *n = &e->g->n[r];
    Ref x, mask;
    if (n->op == OP_dot) {
        product_text(a, r, el);
    } else if (n->op == OP_gdot) {
        buf_printf(a->b, "%s ? dot%u[4 * n + %d] : 0.f", below(a, n, el),
                   (unsigned)r, el);
    } else if (is_tile(e, r) || n->op == OP_input || is_there(a, r)) {
        input_text(a, r, el);
    } else if (n->op == OP_cumsum || n->op == OP_last || n->op == OP_scan
               || n->op == OP_delay) {
        gate_text(a, r, el);
    } else if (n->op == OP_dup) {
        turn_text(a, r, el);
    } else if (n->op == OP_rot90) {
        buf_printf(a->b, "%s%s", el & 1 ? "" : "-",
                   operand_name(a, n->a[0], el ^ 1));
    } else if (swish_of(a, r)) {
        x = swish_of(a, r);
        buf_printf(a->b, "swish<DEEP>(%s", operand_name(a, x, el));
        if (a->slim)
            buf_printf(a->b, ", %s(half%u[2 * n + %d])", el & 1 ? "high"
                       : "low", (unsigned)x, el >> 1);
        buf_printf(a->b, ")");
    } else if (n->op == OP_div) {
        buf_printf(a->b, "quotient_(%s, %s)", operand_name(a, n->a[0], el),
                   operand_name(a, n->a[1], el));
    } else if (is_rotated(a, n)) {
        buf_printf(a->b, "__%sf(%s)", op_info[n->op].name,
                   operand_name(a, n->a[0], el));
    } else if (n->op == OP_dmask) {
        buf_printf(a->b, "%s ? %s : 0.f", below(a, n, el),
                   mask_decay(a, n, el));
    } else if (masked_product(e, n, &x, &mask) && a->mask) {
        buf_printf(a->b, "%s * decay[4 * n + %d]", operand_name(a, x, el),
                   el);
    } else if (masked_product(e, n, &x, &mask)) {
        buf_printf(a->b, "%s ? %s * %s : 0.f", below(a, &e->g->n[mask], el),
                   operand_name(a, x, el),
                   mask_decay(a, &e->g->n[mask], el));
    } else if (n->op == OP_cat) {
        buf_printf(a->b, "i%d %% RANKS < %d ? %s : %s", el >> 1,
                   (int)axis_extent(e->g, n->a[0], AX_R),
                   operand_name(a, n->a[0], el), operand_name(a, n->a[1], el));
    } else {
        const char *operand[3] = { 0 };
        for (int i = 0; i < 3; i++)
            if (n->a[i])
                operand[i] = operand_name(a, n->a[i], el);
        value_text(a->b, n->op, operand);
    }
}

/* A mask that only masks products is folded into them, a sigmoid into
 * swishes. */
static bool is_folded(const Ahead *a, Ref r)
{
    const Graph *g = a->e->g;
    if (g->n[r].op != OP_dmask && g->n[r].op != OP_sigmoid)
        return false;
    for (int i = 0; i < a->n; i++) {
        const Node *u = &g->n[a->order[i]];
        Ref x = 0, mask = 0;
        bool into = g->n[r].op == OP_sigmoid ? swish_of(a, a->order[i])
                  : masked_product(a->e, u, &x, &mask) && mask == r && x != r;
        for (int k = 0; k < 3; k++)
            if (u->a[k] && strip(g, u->a[k]) == r && !into)
                return false;
    }
    return true;
}

/* ---- the role ---- */

static void check_dot(Ahead *a, Ref r)
{
    Emit *e = a->e;
    const Node *n = &e->g->n[r];
    AxisSet over = n->over & ~RANK_AXES;
    int axis = over ? lowest(over) : AX_R;
    if (over & (over - 1) || axis < AX_DIM || axis == e->row_axis)
        no_place(e, r, "scores contract one axis, not the state's rows");
    for (int i = 0; i < 2; i++) {
        Product p;
        peel(e, n->a[i], &p);
        if (!p.core || !is_matrix(e, p.core))
            no_place(e, n->a[i], "scores are products of matrices of tokens");
    }
}

/* All of the axis that a product contracts; or the half of it that this block
 * of a pair made and the half that the other did. */
enum { WHOLE, OWN, OTHER };

static void issue(Ahead *a, Ref r, int half)
{
    Emit *e = a->e;
    const Node *n = &e->g->n[r];
    Product p[2];
    int row = has_col(e, n->a[0]) ? 1 : 0;
    for (int i = 0; i < 2; i++)
        peel(e, n->a[i], &p[i]);
    int ta = use_tile(e, p[row].core), tb = use_tile(e, p[1 - row].core);
    int tiles = tile_count(e, e->tile[ta].r);
    if (half == OWN && tiles != 2)
        return;
    half = tiles != 2 ? WHOLE : half;
    const char *at = e->team ? " + 4096 * member" : half == OWN
                   ? " + 8192 * block" : half == OTHER
                   ? " + 8192 * (block ^ 1)" : "";
    buf_printf(a->b, "multiply<%d, 0>(dot%u, along_k(stage + TILE_%u%s),"
               " along_k(stage + TILE_%u%s), %d);\n",
               half == WHOLE ? 4 * tiles : 4, (unsigned)r,
               (unsigned)e->tile[ta].r, e->team ? "" : at,
               (unsigned)e->tile[tb].r, at, half == OTHER);
}

/* The matrix's columns (its rows) times a vector, as it is packed. */
static char *scale_text(Ahead *a, const Score *s, int el)
{
    if (s->vector < 0)
        return ctx_string(a->e->c, "");
    *(s->rows ? &a->row : &a->col) |= (uint64_t)1 << s->vector;
    const char *name = a->e->pub[s->vector].name;
    return s->rows ? ctx_format(a->e->c, " * row_%s_%d", name, el >> 1)
                   : ctx_format(a->e->c, " * col_%s.%c", name, "xy"[el & 1]);
}

int ahead_count(const Ahead *a)
{
    return a->scalar ? 1 : a->line ? a->line : 4;
}

void ahead_elements(Ahead *a)
{
    Buf *b = a->b;
    for (int i = 0; i < a->n; i++) {
        Ref r = a->order[i];
        if (is_folded(a, r))
            continue;
        gate_pair(a, r);
        turn_pair(a, r);
        for (int el = 0; el < ahead_count(a); el++) {
            buf_printf(b, el ? ",\n" : "const float");
            buf_printf(b, el ? "v%u_%d = " : " v%u_%d = ",
                       (unsigned)r, el);
            element_text(a, r, el);
        }
        buf_printf(b, ";\n");
    }
}

static void pack_score(Ahead *a, const Score *s)
{
    for (int i = 0; i < 2; i++) {
        buf_printf(a->b, "packed[2 * n + %d] = pack(v%u_%d%s, v%u_%d%s)", i,
                   (unsigned)s->root, 2 * i, scale_text(a, s, 2 * i),
                   (unsigned)s->root, 2 * i + 1, scale_text(a, s, 2 * i + 1));
        if (a->mask)
            buf_printf(a->b, " & kept[2 * n + %d]", i);
        buf_printf(a->b, ";\n");
    }
}

/* The fragment to memory as it is, for invert: up to the warp's own block. */
static void store_score(Ahead *a, const Score *s)
{
    for (int i = 0; i < 2; i++)
        buf_printf(a->b, "store2(entry(own, %d, 8 * n), v%u_%d, v%u_%d);\n",
                   8 * i, (unsigned)s->root, 2 * i, (unsigned)s->root,
                   2 * i + 1);
    a->e->inverse = true;
}

void ahead_vectors(Ahead *a, Buf *b, bool cols)
{
    for (int i = 0; i < a->e->npub; i++) {
        const char *name = a->e->pub[i].name;
        uint64_t bit = (uint64_t)1 << i;
        if (cols && a->col & bit)
            buf_printf(b, "const float2 col_%s = load2(vectors + "
                       "AT_%s + 4 * j0);\n", name, name);
        if (!cols && a->one & bit)
            buf_printf(b, "const float one_%s = load1(vectors + AT_%s)"
                       ";\n", name, name);
        for (int half = 0; half < 1 + !a->line && !cols && a->row & bit;
             half++)
            buf_printf(b, "const float row_%s_%d = load1(vectors + AT_%s + "
                       "4 * i%d);\n", name, half, name, half);
    }
}

static void issue_group(Ahead *a, const uint8_t *issued, int half)
{
    Emit *e = a->e;
    buf_printf(a->b, "wgmma_fence();\n");
    for (int i = 0; i < a->n; i++)
        if (e->g->n[a->order[i]].op == OP_dot && !issued[a->order[i]])
            issue(a, a->order[i], half);
    buf_printf(a->b, "wgmma_commit();\n");
}

/* Issues the products below a score that are not in `issued`, and works out its
 * decays beside them; a pair waits for the other's half in between. Returns how
 * many groups. */
static int issue_products(Ahead *a, uint8_t *issued)
{
    Emit *e = a->e;
    int n = 0;
    for (int i = 0; i < a->n; i++)
        if (e->g->n[a->order[i]].op == OP_dot && !issued[a->order[i]]) {
            check_dot(a, a->order[i]);
            buf_printf(a->b, "float dot%u[%d];\n", (unsigned)a->order[i],
                       e->team ? 16 : 32);
            n++;
        }
    if (n)
        issue_group(a, issued, e->paired ? OWN : WHOLE);
    if (a->mask)
        emit_decays(a);
    if (e->paired)
        buf_printf(a->b, "%s", remote_wait());
    if (n && e->paired)
        issue_group(a, issued, OTHER);
    for (int i = 0; i < a->n; i++)
        issued[a->order[i]] |= e->g->n[a->order[i]].op == OP_dot;
    return !n ? 0 : e->paired ? 2 : 1;
}

static void keep_products(Ahead *a)
{
    for (int i = 0; i < a->n; i++)
        if (a->e->g->n[a->order[i]].op == OP_dot) {
            buf_printf(a->b, "keep(dot%u);\n", (unsigned)a->order[i]);
            add_first(a->e, a->b, a->order[i]);
        }
}

void score_columns(Ahead *a, Buf *b, const char *first)
{
    bool team = a->e->team;
    buf_printf(b, "UNROLL for (int n = 0; n < %d; n++) {\n%s"
               "const int j0 = 8 * n + at.col%s, j1 = j0 + 1;\n",
               team ? 4 : 8, first, team ? " + 32 * member" : "");
}

void finish_score(Emit *e, Buf *b, int at)
{
    const Score *s = &e->score[at];
    Buf body = { .ctx = e->c };
    Ahead a = { .e = e, .b = &body };
    ahead_visit(&a, s->root);
    a.mask = early_mask(&a, s);
    ahead_elements(&a);
    if (s->inverse)
        store_score(&a, s);
    else
        pack_score(&a, s);
    buf_printf(b, s->inverse ? "const u32 own = entry(scratch + INVERSE, "
               "fresh(i0), at.col);\n" : e->team
               ? "u32 packed[8];\n" : "u32 packed[16];\n");
    ahead_vectors(&a, b, false);
    score_columns(&a, b, s->inverse ? "if (n > 2 * at.warp + 1)\nbreak;\n"
                  : "");
    ahead_vectors(&a, b, true);
    buf_put(b, body.s, body.len);
    if (s->inverse)                     /* ptxas spills the other way round */
        buf_printf(b, "}\ninvert(stage + SCORE_%d, scratch + INVERSE, "
                   "at.lane, %s);\n", at, e->ngates ? "at.warp"
                   : "fresh(at.warp)");
    else
        buf_printf(b, "}\nwrite_%s(stage + SCORE_%d, packed, at%s);\n",
                   e->team ? "half" : "fragment", at,
                   e->team ? ", member" : "");
}

/* The scores without gdots. If all products are in registers at once, what is
 * inverted comes last, when the others are through. */
static int plain_order(const Emit *e, bool early, int order[MAX_SCORES])
{
    int n = 0;
    for (int last = 0; last < 2; last++)
        for (int i = 0; i < e->nscores; i++)
            if ((early && e->score[i].inverse) == last
                && !has_gdot(e, e->score[i].root))
                order[n++] = i;
    return n;
}

/* All products at once where the registers are there, then score by score. */
static void plain_scores(Emit *e, Buf *b)
{
    Ahead *a = ctx_alloc(e->c, MAX_SCORES * sizeof *a);
    uint8_t *issued = ctx_alloc(e->c, e->g->len);
    bool early = e->groups == 1;
    int order[MAX_SCORES], group[MAX_SCORES], n = 0;
    int scores = plain_order(e, early, order);
    for (int i = 0; i < scores; i++) {
        a[i] = (Ahead){ .e = e, .b = b };
        ahead_visit(&a[i], e->score[order[i]].root);
        a[i].mask = early_mask(&a[i], &e->score[order[i]]);
        if (early)
            n += issue_products(&a[i], issued);
        group[i] = n;
    }
    for (int i = 0; i < scores; i++) {
        buf_printf(b, "/* %%%u */\n{\n",
                   (unsigned)e->score[order[i]].root);
        if (!early) {
            memset(issued, 0, e->g->len);
            issue_products(&a[i], issued);
        }
        buf_printf(b, "wgmma_wait<%d>();\n", early ? n - group[i] : 0);
        keep_products(&a[i]);
        finish_score(e, b, order[i]);
        buf_printf(b, "}\n");
    }
}

/* One kind of act, and what went before is there for all. */
static void then(const Emit *e, Buf *to, const Buf *acts, bool fence)
{
    if (to->len && acts->len)
        buf_printf(to, "%s%s", fence ? "fence_async();\n" : "",
                   ahead_sync(e));
    if (acts->len)
        buf_put(to, acts->s, acts->len);
}

/* Running sums: a mere scan needs them too, or not. */
static void put_sums(Emit *e, const Buf *sums)
{
    bool both = e->out->split && (e->computed_scan || e->nchains) && sums->len;
    then(e, both ? &e->both : &e->ahead, sums, false);
    if (both)
        buf_printf(&e->both, "%s", ahead_sync(e));
}

/* What a scan needs, made: values per column, matrices; and what carries a sum
 * on. */
static void emit_skip(Emit *e, const Buf *sums, const Buf *keys)
{
    Buf computed = { .ctx = e->c };
    for (int i = 0; i < e->nchains; i++)
        scan_sources(e, e->chain[i].sources);
    if (e->computed_scan) {
        make_matrices(e, &computed, SCANNED);
        then(e, &e->skip, keys, false);
        then(e, &e->skip, &computed, false);
        emit_remote(e, &e->skip, true);
        buf_printf(&e->skip, "%s", e->paired ? remote_wait() : "");
    }
    advance_rotations(e, &e->skip);
    if (sums->len || e->nrotations)
        buf_printf(&e->skip, "%s", ahead_sync(e));
}

void emit_ahead(Emit *e)
{
    Buf sums = { .ctx = e->c }, early = sums, gated = sums, deferred = sums;
    Buf plain = sums, last = sums, keys = sums, dots = sums, values = sums;
    Buf gates = sums;
    for (int i = 0; i < e->nscores; i++)
        find_gdots(e, e->score[i].root);
    find_reuse(e);
    find_first(e);
    plain_scores(e, &plain);
    emit_gdots(e, &gated, &last);
    find_overlay(e);
    emit_sums(e, &sums, e->overlays ? &gates : &sums);
    emit_keys(e, &keys);
    find_pair(e);
    if (!e->overlays)
        then(e, &early, &keys, false);
    emit_diagonals(e, &early);
    make_matrices(e, &early, EARLY);
    then(e, &early, &gates, false);
    if (e->overlays)
        then(e, &early, &keys, false);
    emit_anchors(e, &early);
    emit_cuts(e, &deferred);
    make_matrices(e, &deferred, LATE);
    emit_first(e, &deferred);
    emit_deferred(e, &dots, &values);
    advance_rotations(e, &deferred);
    put_sums(e, &sums);
    then(e, &e->ahead, &dots, false);
    then(e, &e->ahead, &values, false);
    then(e, &e->ahead, &early, false);
    then(e, &e->ahead, &gated, false);
    then(e, &e->ahead, &deferred, false);
    emit_remote(e, &e->ahead, false);
    if (!e->paired)
        then(e, &e->ahead, &plain, true);
    else if (plain.len)                 /* again, by halves */
        plain_scores(e, &e->ahead);
    else
        buf_printf(&e->ahead, "%s", remote_wait());
    then(e, &e->ahead, &last, false);
    if (sums.len)                       /* the next chunk's overwrite these */
        buf_printf(&e->ahead, "%s", ahead_sync(e));
    begin_rotations(e);
    begin_chains(e);
    end_previous(e);
    emit_skip(e, &sums, &keys);
}
