/* print_decays.c -- sums along a chunk, products under decays per key, and
 * matrices that a program finds or leaves outside of tiles: decays.cuh's.
 */
#include "print_parts.h"
#include "source.h"

#include <math.h>

static const Node *node_of(const Print *p, Ref r)
{
    return &p->s->g->n[r];
}

/* ---- instructions ---- */

/* One a token, a number, or a matrix of them; or of each column one. */
static const char *gates_text(Print *p, const KInst *k, const KValue *v)
{
    const char *inside = inside_text(p, k->col, "k");
    if (v->layout == LAY_GLOBAL)
        return ctx_format(p->c, "same_gates([&](int k) { return %s%s%s%s; },"
                          " x.n)", inside ? inside : "", inside ? " ? " : "",
                          vector_text(p, v->node, ctx_format(p->c, "%s + k",
                          sliced_index(p, k->col, 0))),
                          inside ? " : 0.f" : "");
    bool vector = v->layout == LAY_VECTOR && v->row != k->col;
    if (vector || v->layout == LAY_SCALAR)
        return ctx_format(p->c, "Gates<%d, 0> { %s, x.n }", vector ? 4 : 0,
                          place(p, v));
    return ctx_format(p->c, "Gates<%d, 4> { %s, x.n }", (int)sums_pitch(v),
                      place(p, v));
}

/* A gate that is a number; NULL: it is none, or there is no gate. */
static const char *number_gate(Print *p, Ref gate)
{
    Buf b = { .ctx = p->c };
    if (!gate || node_of(p, gate)->op != OP_num)
        return NULL;
    buf_printf(&b, "same_gates([](int) { return ");
    number_text(&b, node_of(p, gate)->num);
    buf_printf(&b, "; }, x.n)");
    return b.s;
}

static bool is_read(const Print *p, int v)
{
    bool any = false;
    for (int i = 0; i < p->s->ninsts; i++)
        any |= has_value(p->s->inst[i].in, p->s->inst[i].nin, v);
    return any;
}

static void put_gated_scan(Print *p, const KInst *k, bool back,
                           const char *last)
{
    const char *begin = "0u";
    int share = share_of(p->s, k->role, k->ncol);
    const Node *n = node_of(p, scan_of(p->s->g,
                                       value_at(p, k->out[0])->node));
    Ref gate = shown_node(p->s->g, n->a[0]);
    const char *gates = number_gate(p, gate);
    for (int i = 1; i < k->nin; i++) {
        const KValue *v = value_at(p, k->in[i]);
        if (v->node == gate)
            gates = gates_text(p, k, v);
        else if (v->layout == LAY_VECTOR)
            begin = place(p, v);
        else
            begin = found_vector(p, v->node, k->col);
    }
    bool most = is_running_most(n->op), rows = back;
    for (int i = 0; i < k->nout; i++)
        rows |= value_at(p, k->out[i])->layout == LAY_SUMS
             && is_read(p, k->out[i]);
    buf_printf(p->b, "gated_rows<%d, %d, %d%s%s>(%s, %s, %s, %s, col0(%d),"
               " l%s);\n", (int)k->ncol, share, back, most ? ", false, true"
               : n->flags & WRAP ? ", true" : !rows ? ", false" : "",
               rows ? "" : most ? ", false" : ", false, false",
               place(p, value_at(p, k->in[0])), gates ? gates
               : "Gates<0, 0> { 0, 0 }", begin, last, share,
               most ? ", x.n" : "");
}

void put_scan(Print *p, const KInst *k)
{
    each_bit(p, k, k->wait_empty, true, put_wait);
    const char *last = "0u";
    int share = share_of(p->s, k->role, k->ncol);
    for (int i = 0; i < k->nout; i++)
        if (value_at(p, k->out[i])->layout == LAY_VECTOR)
            last = place(p, value_at(p, k->out[i]));
    const KValue *from = value_at(p, k->in[0]);
    bool back = node_of(p, value_at(p, k->out[0])->node)->flags & REVERSE;
    if (!adds_tokens(node_of(p, value_at(p, k->out[0])->node)->op)) {
        put_gated_scan(p, k, back, last);
        return;
    }
    buf_printf(p->b, "scan_rows<%d, %d, %d>(%s, %s, col0(%d),"
               " l);\n",
               (int)k->ncol, share, back, place(p, from), last, share);
}

/* Terms of the sums that an instruction makes, one sum's behind another's. */
typedef struct TermsOf {
    int n, sum[MOST_TERMS];
    KTerm term[MOST_TERMS];
} TermsOf;

static TermsOf terms_of(const Print *p, const KInst *k)
{
    TermsOf t = { 0 };
    for (int i = 0; i < k->nout; i++) {
        int n = decayed_terms(p->s->g, value_at(p, k->out[i])->node,
                              t.term + t.n);
        while (n--)
            t.sum[t.n++] = i;
    }
    return t;
}

/* Of its sum's terms the first. */
static double first_scale(const TermsOf *t, int i)
{
    while (i && t->sum[i - 1] == t->sum[i])
        i--;
    return fabs(t->term[i].scale);
}

/* Scores, what those meet, and the decays of that; STRICT, scale, its size. */
static const char *terms_text(Print *p, const KInst *k, const TermsOf *t,
                              bool later)
{
    Buf b = { .ctx = p->c };
    buf_printf(&b, "Terms<%d> {", t->n);
    for (int part = 0; part < 6; part++) {
        buf_printf(&b, part ? ", {" : " {");
        for (int i = 0; i < t->n; i++) {
            const int16_t *in = k->in + 4 * i;
            buf_printf(&b, i ? ", " : " ");
            if (part < 3)
                buf_printf(&b, "%s", place(p, value_at(p, in[part < 2 ? part
                                               : later ? 3 : 2])));
            else if (part == 3)
                buf_printf(&b, "%d", (node_of(p, t->term[i].product)->flags
                                      & STRICT) != 0);
            else
                number_text(&b, part == 4 ? t->term[i].scale
                            : fabs(t->term[i].scale) / first_scale(t, i));
        }
        buf_printf(&b, " }");
    }
    buf_printf(&b, " }");
    return b.s;
}

/* What terms have in common with those before them: decays.cuh's HOW. */
static unsigned how_terms_are(const KInst *k, const TermsOf *t, bool later)
{
    enum { AS_BEFORE = 1, MEETS_AS_BEFORE = 2, SUM_SHIFT = 2, TERM_BITS = 4 };
    unsigned how = 0;
    for (int i = 0; i < t->n; i++) {
        const int16_t *in = k->in + 4 * i, *to = in - 4;
        unsigned of = (unsigned)t->sum[i] << SUM_SHIFT;
        if (i && in[later ? 3 : 2] == to[later ? 3 : 2]) {
            bool same = in[1] == to[1]
                && fabs(t->term[i].scale) * first_scale(t, i - 1)
                   == fabs(t->term[i - 1].scale) * first_scale(t, i);
            of |= AS_BEFORE | (same ? MEETS_AS_BEFORE : 0);
        }
        how |= of << TERM_BITS * i;
    }
    for (int i = t->n; i < MOST_TERMS; i++)
        how |= (unsigned)k->nout << (TERM_BITS * i + SUM_SHIFT);
    return how;
}

/* Of each of the sums its term's value `at`. */
static const char *places_text(Print *p, const KInst *k, int at)
{
    Buf b = { .ctx = p->c };
    for (int i = 0; i < k->nout; i++)
        buf_printf(&b, "%s %s", i ? "," : "",
                   place(p, value_at(p, k->in[4 * i + at])));
    return b.s;
}

static void put_scores(Print *p, const KInst *k, const TermsOf *t)
{
    Buf strict = { .ctx = p->c };
    int share = share_of(p->s, k->role, k->ncol);
    for (int i = 0; i < k->nout; i++)
        buf_printf(&strict, "%s %d", i ? "," : "",
                   (node_of(p, t->term[i].product)->flags & STRICT) != 0);
    buf_printf(p->b, "const u32 row[] = {%s }, col[] = {%s };\n"
               "const u32 decays[] = {%s };\nconst int strict[] = {%s };\n"
               "decayed_scores<%d, %d>(sum, row, col, decays, strict, %s,"
               " col0(%d), l);\n", places_text(p, k, 0), places_text(p, k, 1),
               places_text(p, k, 2), strict.s,
               (int)value_at(p, k->in[0])->ncol, share / 2,
               place(p, value_at(p, k->in[3])), share);
}

void put_decayed(Print *p, const KInst *k)
{
    int share = share_of(p->s, k->role, k->ncol);
    TermsOf t = terms_of(p, k);
    bool later = node_of(p, t.term[0].product)->over & AXIS(AX_J);
    buf_printf(p->b, "{\nfloat *const sum[] = {");
    for (int i = 0; i < k->nout; i++)
        buf_printf(p->b, "%s %s", i ? "," : "",
                   fragment_name(p, value_at(p, k->out[i])->node));
    buf_printf(p->b, " };\n");
    if (k->col == AX_J)
        put_scores(p, k, &t);
    else
        buf_printf(p->b, "decayed_%s<%d, %d, %d, 0x%x%s>(sum, %s, %s, %s,"
                   " col0(%d), l);\n", k->parts ? "parts" : "sums",
                   (int)k->ncol, share / 2, later,
                   how_terms_are(k, &t, later), !k->parts ? ""
                   : ctx_format(p->c, ", %d", k->parts),
                   terms_text(p, k, &t, later),
                   place(p, value_at(p, k->in[later ? 2 : 3])),
                   place(p, value_at(p, k->in[3])), share);
    buf_printf(p->b, "}\n");
}

/* ---- what programs find, and leave ---- */

/* Where a program's sums are that its iteration is at; behind a chunk's rows it
 * finds some other's. */
static const char *here(Print *p, const KValue *v, const char *col)
{
    return ctx_format(p->c, v->nrow < TILE_ROWS
                      ? "%s + row %% CHUNK_ROWS * %d + 4 * %s"
                      : "%s + row * %d + 4 * %s", place(p, v),
                      (int)sums_pitch(v), col);
}

/* Scores are of rows behind the first columns that two warpgroups share out:
 * where nothing else says which rows a warp has, those with the most and those
 * with the fewest alternate on a scheduler. */
static bool opposes_rows(const Schedule *s)
{
    bool scores = false;
    for (int i = 0; i < s->ninsts; i++) {
        if (s->inst[i].op == K_PRODUCT)
            return false;
        scores |= s->inst[i].op == K_DECAYED && s->inst[i].col == AX_J;
    }
    return scores && s->groups == 2 && !s->ahead;
}

const char *lane_text(const Print *p, bool fresh)
{
    const char *thread = fresh ? "fresh((int)threadIdx.x)"
                               : "(int)threadIdx.x";
    return opposes_rows(p->s) ? ctx_format(p->c, "opposed_lane_of(%s)", thread)
         : fresh ? ctx_format(p->c, "lane_of(%s)", thread) : "lane_here()";
}

static void put_fresh_lane(Print *p)
{
    buf_printf(p->b, "const Lane l = %s;\n", lane_text(p, true));
}

/* Addresses that are worked out anew take no registers from item to item, or
 * between programs. */
void put_item_lane(Print *p)
{
    for (int i = 0; i < p->s->ninsts; i++)
        if (p->s->inst[i].op == K_SCAN) {
            put_fresh_lane(p);
            return;
        }
}

void put_lane(Print *p, const KInst *k)
{
    for (int i = 0; i < k->nin; i++)
        if (value_at(p, k->in[i])->layout == LAY_SUMS) {
            put_fresh_lane(p);
            return;
        }
}

/* `more`: of the name. */
static void put_found_vector(Print *p, const KInst *k, Ref r, int share,
                             const char *more)
{
    unsigned u = (unsigned)r;
    const char *cut = k->nrow % TILE_ROWS == 0 ? NULL
        : ctx_format(p->c, "l.row + h / 2 * 64 + h %% 2 * 8 < %d",
                     (int)k->nrow);
    const char *rows = inside_text(p, k->row, "l.row + h / 2 * 64 + h % 2 * 8");
    const char *cols = inside_text(p, k->col, ctx_format(p->c,
        "col0(%d) + e / 2 * 8 + l.col + e %% 2", share));
    rows = rows ? rows : cut;
    if (node_of(p, r)->axes & AXIS(k->row))
        buf_printf(p->b, "float r%u%s[%d];\nUNROLL for (int h = 0; h < %d;"
                   " h++)\nr%u%s[h] = %s%s%s%s;\n", u, more, thread_rows(k),
                   thread_rows(k), u, more, rows ? rows : "", rows ? " ? " : "",
                   vector_text(p, r, ctx_format(p->c, "%s + l.row +"
                   " h / 2 * 64 + h %% 2 * 8", sliced_index(p, k->row, 0))),
                   rows ? " : 0.f" : "");
    else
        buf_printf(p->b, "float c%u%s[%d];\nUNROLL for (int e = 0; e < %d;"
                   " e++)\nc%u%s[e] = %s%s%s%s;\n", u, more, share / 4,
                   share / 4, u, more, cols ? cols : "", cols ? " ? " : "",
                   vector_text(p, r, ctx_format(p->c, "%s + col0(%d) +"
                   " e / 2 * 8 + l.col + e %% 2", sliced_index(p, k->col, 0),
                   share)), cols ? " : 0.f" : "");
}

static const char *raw_name(Print *p, const KInst *k, const KValue *v)
{
    return ctx_format(p->c, "q%u_%d", (unsigned)v->node,
                      (int)(k - p->s->inst));
}

static bool has_fragments(const Print *p, const KInst *k)
{
    bool any = false;
    for (int i = 0; i < k->nin + k->nout; i++)
        any |= value_at(p, i < k->nin ? k->in[i] : k->out[i - k->nin])->layout
               == LAY_FRAGMENT;
    return any;
}

static bool multiplies(const Print *p)
{
    bool any = false;
    for (int i = 0; i < p->s->ninsts; i++)
        any |= p->s->inst[i].op == K_PRODUCT || p->s->inst[i].op == K_DECAYED;
    return any;
}

/* The instruction before which a program's matrices are asked for: those from
 * there on are no program that holds fragments. */
static const KInst *asked_before(const Print *p, const KInst *k)
{
    const KInst *at = k;
    for (const KInst *i = k - 1; i >= p->s->inst; i--) {
        if (i->role != k->role)
            continue;
        bool light = i->op == K_MAP && !has_fragments(p, i);
        if (!light && i->op != K_PRODUCT && i->op != K_SETTLE
            && i->op != K_SYNC && i->op != K_CLEAR && i->op != K_SCAN
            && (i->op != K_ACROSS || multiplies(p)))
            break;
        at = i;
    }
    return at;
}

static void put_raw(Print *p, const KInst *k, const KValue *v)
{
    const Node *n = node_of(p, v->node);
    const char *name = raw_name(p, k, v);
    int share = share_of(p->s, k->role, k->ncol);
    int end = padded_end(p, v->col);
    buf_printf(p->b, "u32 %s[%d];\nfind_matrix<%d%s>(%s, a.tensor[%d], x, %s +"
               " col0(%d), l);\n", name, share / 4,
               p->s->g->in[n->index].ranked,
               end ? ctx_format(p->c, ", %d", end) : "", name,
               tensor_for(p, ARG_INPUT, n->index, p->o->in[n->index]),
               sliced_index(p, v->col, 0), share);
}

/* What a thread has of so many columns of an input that lies in memory. */
static void put_loaded(Print *p, const KValue *v, int share, const char *name)
{
    const Node *n = node_of(p, v->node);
    buf_printf(p->b, "float %s[%d];\nload_matrix<%s%s>(%s, a.tensor[%d], x,"
               " %s + col0(%d), l);\n", name, share / 2,
               element_type(p->o->in[n->index]), is_padded(p->s, v->col)
               ? ctx_format(p->c, ", %d, %d", p->s->g->in[n->index].ranked,
                            padded_end(p, v->col))
               : p->s->g->in[n->index].ranked ? ", true" : "", name,
               tensor_for(p, ARG_INPUT, n->index, p->o->in[n->index]),
               sliced_index(p, v->col, 0), share);
}

/* What kernels before have kept in float32, where there are registers for it:
 * in a kernel without products. */
static bool is_kept_early(const Print *p, const KInst *k, const KValue *v)
{
    return v->layout == LAY_GLOBAL && !k->parts && k->row == AX_I
        && node_of(p, v->node)->op != OP_input
        && !is_found_of_state(p, k, v)
        && !schedule_computes(p->s, loaded_node(p->s, v->node))
        && !multiplies(p);
}

static bool is_vector_of(const Node *n)
{
    return !(n->axes & (n->axes - 1));
}

/* A matrix that kernels keep in float32, or a vector of a state's. */
static void put_kept(Print *p, const KInst *k, const KValue *v,
                     const char *more)
{
    int share = map_share(p, k);
    int regs = (k->nrow + TILE_ROWS - 1) / TILE_ROWS * share / 2;
    unsigned u = (unsigned)v->node;
    if (is_vector_of(node_of(p, v->node)))
        put_found_vector(p, k, v->node, share, more);
    else
        buf_printf(p->b, "float g%u%s[%d];\nload_kept<%d, %d>(g%u%s, %s + %s +"
                   " col0(%d), x, l%s);\n", u, more, regs,
                   kept_pitch(p, v->col),
                   tokens_delayed(p->s, v->node), u, more,
                   kept_place(p, loaded_node(p->s, v->node)),
                   sliced_index(p, v->col, 0), share,
                   end_text(p, v->col, share));
}

static const char *early_name(const Print *p, const KInst *k)
{
    return ctx_format(p->c, "_%d", (int)(k - p->s->inst));
}

/* By the name that it has in the program. */
static void put_kept_again(Print *p, const KInst *k, const KValue *v)
{
    const Node *n = node_of(p, v->node);
    int share = map_share(p, k);
    bool rows = n->axes & AXIS(k->row), vector = is_vector_of(n);
    int regs = !vector ? (k->nrow + TILE_ROWS - 1) / TILE_ROWS * share / 2
             : rows ? thread_rows(k) : share / 4;
    char kind = vector ? rows ? 'r' : 'c' : 'g';
    buf_printf(p->b, "const float (&%c%u)[%d] = %c%u%s;\n", kind,
               (unsigned)v->node, regs, kind, (unsigned)v->node,
               early_name(p, k));
}

void put_found_early(Print *p, const KInst *from)
{
    for (const KInst *k = from; k < p->s->inst + p->s->ninsts; k++) {
        if (k->role != from->role || k->op != K_MAP || (p->lean && !k->lean)
            || asked_before(p, k) != from)
            continue;
        for (int i = 0; i < k->nin; i++) {
            const KValue *v = value_at(p, k->in[i]);
            if (is_found_raw(p, k, v))
                put_raw(p, k, v);
            else if (is_found_whole(p, k, v))
                put_loaded(p, v, share_of(p->s, k->role, k->ncol),
                           raw_name(p, k, v));
            else if (is_kept_early(p, k, v))
                put_kept(p, k, v, early_name(p, k));
        }
    }
}

void put_spread(Print *p, KRole role)
{
    for (int j = 0; j < p->s->ninsts; j++) {
        const KInst *k = &p->s->inst[j];
        for (int i = 0; i < k->nin && k->role == role; i++) {
            const KValue *v = value_at(p, k->in[i]);
            if (v->layout != LAY_GLOBAL || !is_spread(p, k, v))
                continue;
            int n = share_of(p->s, role, k->ncol) / 8;
            int axis = lowest(node_of(p, v->node)->axes);
            const char *name = spread_name(p, k, v);
            const char *at = ctx_format(p->c, "(%s + n * 8 + l.col) / 2",
                                        p->s->interleave > 1 ? "0"
                                        : ctx_format(p->c, "col0(%d)", n * 8));
            const char *inside = inside_text(p, axis, at);
            bool wraps = is_wrapped_alone(p, k, v->node);
            buf_printf(p->b, "float %s[%d];\nUNROLL for (int n = 0; n < %d;"
                       " n++)\n%s[n] = %s%s%s%s%s%s;\n", name, n, n, name,
                       inside ? inside : "", inside ? " ? " : "",
                       wraps ? "wrap_(" : "", vector_text(p, v->node, at),
                       wraps ? ")" : "", inside ? " : 0.f" : "");
        }
    }
}

/* A head's constant, of float32. */
static void put_constant(Print *p, const KInst *k, const KValue *v, int regs)
{
    int index = p->s->g->n[v->node].index, share = map_share(p, k);
    bool padded = is_padded(p->s, v->row) || is_padded(p->s, v->col);
    buf_printf(p->b, "float g%u[%d];\nload_constant<%s, %d, %d%s>(g%u,"
               " a.tensor[%d], x, %s%s, %s + col0(%d), l);\n",
               (unsigned)v->node, regs, element_type(p->o->in[index]),
               rows_of_group(p->s, k->role, v->nrow), share, !padded ? ""
               : ctx_format(p->c, ", %d, %d", padded_end(p, v->row),
                            padded_end(p, v->col)), (unsigned)v->node,
               tensor_for(p, ARG_INPUT, index, p->o->in[index]),
               row0_text(p, k), sliced_index(p, v->row, 0),
               sliced_index(p, v->col, 0), share);
}

void put_found_matrices(Print *p, const KInst *k, int regs)
{
    int share = map_share(p, k);
    for (int i = 0; i < k->nin; i++) {
        const KValue *v = value_at(p, k->in[i]);
        const Node *n = node_of(p, v->node);
        unsigned u = (unsigned)v->node;
        if (v->layout != LAY_GLOBAL)
            continue;
        if (is_found_of_state(p, k, v))
            buf_printf(p->b, p->s->tile == F32 ? "Two t%u = {};\n"
                       : "u32 t%u = 0;\n", u);
        else if (is_found_whole(p, k, v) && k->parts)
            buf_printf(p->b, "float g%u[%d];\ntake_part(g%u, %s, part);\n", u,
                       regs, u, raw_name(p, k, v));
        else if (is_found_whole(p, k, v))
            buf_printf(p->b, "const float (&g%u)[%d] = %s;\n", u, regs,
                       raw_name(p, k, v));
        else if (is_found_raw(p, k, v) && k->parts)
            buf_printf(p->b, "u32 q%u[%d];\ntake_part(q%u, %s, part);\n", u,
                       regs / 2, u, raw_name(p, k, v));
        else if (is_found_raw(p, k, v))
            buf_printf(p->b, "const u32 (&q%u)[%d] = %s;\n", u, regs / 2,
                       raw_name(p, k, v));
        else if (is_kept_early(p, k, v))
            put_kept_again(p, k, v);
        else if (is_spread(p, k, v))
            continue;
        else if (is_vector_of(n))
            put_found_vector(p, k, v->node, share, "");
        else if (n->op != OP_input)
            put_kept(p, k, v, "");
        else if (v->row >= AX_DIM)
            put_constant(p, k, v, regs);
        else
            put_loaded(p, v, share, ctx_format(p->c, "g%u", u));
    }
    for (int i = 0; i < k->nin; i++) {
        const KValue *v = value_at(p, k->in[i]);
        if (is_found_by_steps(p, k, v))
            buf_printf(p->b, v->layout == LAY_TILE ? p->s->tile == F32
                       ? "Two t%u[4];\n" : "u32 t%u[4];\n"
                       : "float2 y%u = { 0, 0 };\n", (unsigned)v->node);
    }
    for (int i = 0; i < k->nout; i++)
        if (value_at(p, k->out[i])->layout == LAY_SUMS
            || value_at(p, k->out[i])->layout == LAY_GLOBAL)
            buf_printf(p->b, "float z%u = 0;\n",
                       (unsigned)value_at(p, k->out[i])->node);
}

/* Of the pair of columns that an element is of its number: columns from an
 * even one on. */
static const char *pair_text(Print *p, const KInst *k)
{
    int share = map_share(p, k);
    return ctx_format(p->c, "(col0(%d) / 2 + e %% %d / 4 * 4 + l.col / 2)",
                      share, share / 2);
}

/* Rows behind a chunk's do not look for another's sums where the program writes
 * these, too. */
static const char *leaves_there(const Print *p, const KInst *k,
                                const KValue *v)
{
    for (int i = 0; i < k->nout; i++) {
        const KValue *o = value_at(p, k->out[i]);
        if (o->layout == LAY_SUMS && o->buffer == v->buffer && o->at == v->at
            && v->nrow < TILE_ROWS)
            return "row < CHUNK_ROWS && ";
    }
    return "";
}

static void put_state_pair(Print *p, const KInst *k, const KValue *v)
{
    const char *inside = inside_text(p, k->col, "col");
    const char *both = full_extent(p, k->col) % 2 == 0 ? NULL
                     : inside_text(p, k->col, "col + 1");
    buf_printf(p->b, "if (e %% 2 == 0)\nt%u = %s%skept_two(%s, row, %s, %s +"
               " row, %s + col, %d%s%s)%s;\n", (unsigned)v->node,
               inside ? inside : "", inside ? " ? " : "",
               kept_place(p, v->node), inside_extent(p, k->row),
               sliced_index(p, k->row, 0), sliced_index(p, k->col, 0),
               kept_pitch(p, k->col), both ? ", " : "", both ? both : "",
               inside ? " : Two {}" : "");
}

void put_found_sums(Print *p, const KInst *k)
{
    int share = map_share(p, k);
    for (int i = 0; i < k->nin; i++) {
        const KValue *v = value_at(p, k->in[i]);
        unsigned u = (unsigned)v->node;
        if (is_found_of_state(p, k, v))
            put_state_pair(p, k, v);
        if (!is_found_by_steps(p, k, v))
            continue;
        if (v->layout == LAY_TILE)
            buf_printf(p->b, "if (e %% 8 == 0)\nread_columns<1>(t%u, %s, %d,"
                       " col0(%d) + 2 * e, l);\n", u, place(p, v),
                       (int)rows_lying(v), share);
        else if (v->layout == LAY_SUMS && v->col != k->col)
            buf_printf(p->b, "if (%se %% 2 == 0)\ny%u.x = y%u.y = load1(%s);\n",
                       leaves_there(p, k, v), u, u, here(p, v,
                                                         pair_text(p, k)));
        else if (v->layout == LAY_SUMS)
            buf_printf(p->b, "if (%se %% 2 == 0)\ny%u = load2(%s);\n",
                       leaves_there(p, k, v), u, here(p, v, "col"));
        else
            buf_printf(p->b, "if (e %% 4 == 0)\ny%u = parts_column<%d>(%s, %d,"
                       " col);\n", u, v->parts, place(p, v),
                       (int)vector_size(v));
    }
}

/* Pairs of columns, and zeros where no tokens are. */
void put_left(Print *p, const KInst *k, const KValue *v)
{
    unsigned u = (unsigned)v->node;
    bool pairs = adds_pairs(node_of(p, v->node)->op);
    if (v->layout != LAY_SUMS && v->layout != LAY_GLOBAL)
        return;
    const char *x = element_of(p, k, v->node);
    const char *within = v->nrow < TILE_ROWS ? "row < CHUNK_ROWS && " : "";
    bool odd = !pairs && full_extent(p, k->col) % 2;  /* half a pair is last */
    const char *inside = inside_text(p, k->col, odd ? "col - 1" : "col");
    if (v->layout == LAY_GLOBAL)
        buf_printf(p->b, "if (e %% 2 && row < x.n%s%s%s)\n", p->s->slices == 1
                   || node_of(p, v->node)->axes & AXIS(p->s->slice_axis) ? ""
                   : " && x.slice == 0", inside ? " && " : "",
                   inside ? inside : "");
    if (v->layout == LAY_GLOBAL && pairs)
        buf_printf(p->b, "(%s)[row * %d + %s + %s] = %s;\n",
                   kept_place(p, v->node), kept_pitch(p, v->col),
                   sliced_index(p, v->col, 0), pair_text(p, k), x);
    else if (v->layout == LAY_GLOBAL)
        buf_printf(p->b, "put_two(%s + row * %d + %s + col - 1, z%u, %s);\n"
                   "z%u = %s;\n", kept_place(p, v->node),
                   kept_pitch(p, v->col), sliced_index(p, v->col, 0), u, x, u,
                   x);
    else if (pairs)
        buf_printf(p->b, "if (%se %% 2)\nstore1(%s, row < x.n ? %s : 0.f);\n",
                   within, here(p, v, pair_text(p, k)), x);
    else if (v->layout == LAY_SUMS)
        buf_printf(p->b, "if (%se %% 2)\nstore2(%s, z%u, row < x.n ? %s : 0.f);"
                   "\nelse\nz%u = row < x.n ? %s : 0.f;\n",
                   within, here(p, v, "(col - 1)"), u, x, u, x);
}

/* ---- vectors that move on ---- */

void put_neighbours(Print *p, const KInst *k)
{
    for (int i = 0; i < k->nnodes; i++) {
        const Node *n = node_of(p, k->node[i]);
        if (!op_is(n->op, SHIFTS))
            continue;
        const KValue *v = value_at(p, schedule_value(p->s,
            shown_node(p->s->g, n->a[0]), LAY_VECTOR));
        buf_printf(p->b, "float d%u[2];\nUNROLL for (int h = 0; h < 2; h++)\n"
                   "d%u[h] = parts_sum<%d>(%s, 64, (l.row + 8 * h + %d) & 63);"
                   "\n", (unsigned)k->node[i], (unsigned)k->node[i], v->parts,
                   place(p, v), n->flags & REVERSE ? rows_of_token(p->s->g)
                   : TILE_ROWS - rows_of_token(p->s->g));
    }
}

const char *delayed_text(Print *p, const KInst *k, Ref r)
{
    const Node *n = node_of(p, r);
    bool back = n->flags & REVERSE;
    return ctx_format(p->c, "row %s ? %s : d%u[h]",
                      p->s->g->rows ? back ? ">= x.n - RANKS" : "< RANKS"
                                    : back ? "== x.n - 1" : "== 0",
                      element_of(p, k, n->a[1]), (unsigned)r);
}
