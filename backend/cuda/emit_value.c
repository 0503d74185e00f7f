/* emit_value.c -- what a value of the plan is on this machine, and its text. */
#include "emit.h"

#include <stdio.h>
#include <string.h>

#define TOKENS (AXIS(AX_I) | AXIS(AX_J) | RANK_AXES)

void no_place(Emit *e, Ref r, const char *why)
{
    ctx_refuse(e->c, e->no, ERR_USER, e->g->n[r].line,
               "the CPU backend runs every plan",
               "no place on the GPU yet for %s: %s", expr_text(e->g, r), why);
}

void no_room(Emit *e, const char *fmt, ...)
{
    char what[128];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    ctx_refuse(e->c, e->no, ERR_LIMIT, 0, NULL, "no place on the GPU: %s",
               what);
}

Ref strip(const Graph *g, Ref r)
{
    while (g->n[r].op == OP_col || g->n[r].op == OP_row)
        r = g->n[r].a[0];
    return r;
}

bool is_vector(const Emit *e, Ref r)
{
    const Node *n = &e->g->n[r];
    return !(n->states & e->serial) && (n->axes & ~TOKENS) == 0
        && (!(n->axes & ROW_AXES) || !(n->axes & COL_AXES));
}

bool is_token(const Emit *e, Ref r)
{
    return is_vector(e, r) && e->g->n[r].axes;
}

bool is_delayed(const Emit *e, Ref r)
{
    const Graph *g = e->g;
    const Node *n = &g->n[strip(g, r)];
    return n->op == OP_delay && g->n[n->a[0]].op == OP_input
        && g->n[n->a[1]].op == OP_state && is_matrix(e, r);
}

Ref tile_base(const Emit *e, Ref r)
{
    r = strip(e->g, r);
    const Node *n = &e->g->n[r];
    return n->op == OP_select && n->over == AXIS(AX_R) ? n->a[0] : r;
}

/* An input whose axis of ranks counts rows. */
static bool is_ranked(const Emit *e, Ref r)
{
    const Node *n = &e->g->n[r];
    return n->op == OP_relabel && n->index == AX_R
        && e->g->n[n->a[0]].op == OP_input;
}

Ref tile_input(const Emit *e, Ref tile)
{
    Ref r = tile_base(e, tile);
    return is_delayed(e, r) || is_ranked(e, r) ? e->g->n[r].a[0] : r;
}

bool is_compact(const Emit *e, Ref tile)
{
    return e->ranks > 1 && !(e->g->n[tile].axes & AXIS(AX_R));
}

bool is_entrywise(const Node *n)
{
    return op_info[n->op].traits & ELEMENTWISE
        || (n->op == OP_cat && n->over == AXIS(AX_R));
}

const char *loaded_name(const Emit *e, Ref tile)
{
    return is_compact(e, tile) ? "COMPACT" : is_float(e, tile) ? "FLOAT"
         : "TILE";
}

char *tile_place(const Emit *e, Ref r)
{
    bool loaded = is_tile(e, r);
    Ref at = loaded ? tile_base(e, r) : strip(e->g, r);
    return ctx_format(e->c, "stage + %s_%u", loaded ? loaded_name(e, at)
                      : "TILE", (unsigned)at);
}

int tile_bytes_of(const Emit *e, Ref r)
{
    bool compact = is_tile(e, r) && is_compact(e, tile_base(e, r));
    if (is_float(e, r))
        return 2 * TILE_BYTES;
    return compact ? TILE_BYTES / e->ranks : TILE_BYTES;
}

bool is_float(const Emit *e, Ref tile)
{
    return is_tile(e, tile)
        && e->o->wide[e->g->n[tile_input(e, tile)].index];
}

char *tile_rows(const Emit *e, Ref r)
{
    Ref base = tile_base(e, r);
    r = strip(e->g, r);
    if (is_tile(e, r) && r != base)
        return ctx_format(e->c, ", %d, %d", e->ranks, e->g->n[r].index);
    if (is_tile(e, r) && is_compact(e, base))
        return ctx_string(e->c, ", 1, 0");
    return ctx_string(e->c, "");
}

bool is_tile(const Emit *e, Ref r)
{
    return is_matrix(e, r) && e->g->n[tile_input(e, r)].op == OP_input;
}

Ref summed(const Emit *e, Ref r)
{
    const Node *n = &e->g->n[r];
    if (n->op == OP_dup)
        return summed(e, n->a[0]);
    if (n->op == OP_delay && e->g->n[n->a[0]].op == OP_scan
        && e->g->n[n->a[0]].a[2] == n->a[1])
        return n->a[0];
    return n->op == OP_last ? n->a[0] : r;
}

bool is_matrix(const Emit *e, Ref r)
{
    const Node *n = &e->g->n[strip(e->g, r)];
    AxisSet dims = n->axes & ~TOKENS;
    return !(n->states & e->serial) && dims && (dims & (dims - 1)) == 0
        && (n->axes & TOKENS & ~AXIS(AX_R)) == AXIS(AX_I);
}

bool is_score(const Emit *e, Ref r)
{
    const Node *n = &e->g->n[r];
    return !(n->states & e->serial)
        && (n->axes & ~RANK_AXES) == (AXIS(AX_I) | AXIS(AX_J));
}

bool is_keyed(const Emit *e, Ref r)
{
    const Node *n = &e->g->n[r];
    return !(n->states & e->serial) && n->axes
        && !(n->axes & (TOKENS | ~DIM_AXES))
        && !(n->axes & (n->axes - 1)) && n->axes != AXIS(e->row_axis);
}

bool has_gdot(const Emit *e, Ref r)
{
    const Node *n = &e->g->n[r];
    bool found = n->op == OP_gdot;
    for (int i = 0; i < 3 && !found && is_score(e, r); i++)
        found = n->a[i] && is_score(e, n->a[i]) && has_gdot(e, n->a[i]);
    return found;
}

int tile_axis(const Emit *e, Ref tile)
{
    AxisSet dims = e->g->n[tile].axes & ~TOKENS;
    return lowest(dims);
}

int padded(int size)
{
    return (size + ROWS - 1) / ROWS * ROWS;
}

int tile_count(const Emit *e, Ref tile)
{
    int ax = tile_axis(e, tile);
    return ax == e->row_axis ? e->groups
                             : padded(e->g->axis[ax].size) / ROWS;
}

/* ---- products ---- */

static void add_factor(Emit *e, Product *p, Ref v, bool inverse)
{
    if (p->n == MAX_FACTORS)
        no_place(e, v, "too many factors in one product");
    p->f[p->n++] = (Factor){ v, inverse };
}

static void peel_into(Emit *e, Ref r, Product *p)
{
    r = strip(e->g, r);
    const Node *n = &e->g->n[r];
    if (is_vector(e, r)) {
        add_factor(e, p, r, false);
    } else if (n->op == OP_mul && !is_score(e, r)
               && (is_vector(e, n->a[0]) || is_vector(e, n->a[1]))) {
        peel_into(e, n->a[0], p);
        peel_into(e, n->a[1], p);
    } else if (n->op == OP_neg && !is_score(e, r)) {
        p->negative = !p->negative;
        peel_into(e, n->a[0], p);
    } else if (n->op == OP_div && is_vector(e, n->a[1]) && !is_score(e, r)) {
        add_factor(e, p, strip(e->g, n->a[1]), true);
        peel_into(e, n->a[0], p);
    } else {
        p->core = r;
    }
}

void peel(Emit *e, Ref r, Product *p)
{
    memset(p, 0, sizeof *p);
    peel_into(e, r, p);
}

/* The vector warp computes v, and what v needs. */
static void need(Emit *e, Ref v)
{
    v = strip(e->g, v);
    const Node *n = &e->g->n[v];
    if (e->vector[v] || n->op == OP_num)
        return;
    if (is_ranked(e, v)) {
        e->vector[v] = 1;
        return;
    }
    if (!is_vector(e, v))
        no_place(e, v, "a value per token made of one that is not");
    e->vector[v] = 1;
    for (int i = 0; i < 4; i++)
        if (n->a[i])
            need(e, n->a[i]);
}

void use_scalars(Emit *e)
{
    const Graph *g = e->g;
    for (int i = 0; i < g->nst; i++)
        if (e->k->states >> i & 1 && !g->st[i].axes) {
            need(e, g->st[i].node);
            need(e, g->st[i].next);
        }
}

static bool same_published(const Published *a, const Published *b)
{
    if (a->n != b->n || a->negative != b->negative || a->log2 != b->log2)
        return false;
    for (int i = 0; i < a->n; i++)
        if (a->f[i].v != b->f[i].v || a->f[i].inverse != b->f[i].inverse)
            return false;
    return true;
}

static void name_published(Published *p)
{
    int len = snprintf(p->name, sizeof p->name, "%s", p->negative ? "n" : "v");
    for (int i = 0; i < p->n; i++)
        len += snprintf(p->name + len, sizeof p->name - (size_t)len, "%s%u",
                        !i ? "" : p->f[i].inverse ? "_per_" : "_",
                        (unsigned)p->f[i].v);
    if (p->log2)
        snprintf(p->name + len, sizeof p->name - (size_t)len, "_log2");
}

int publish(Emit *e, const Product *p, bool token, bool log2)
{
    Published x;
    memset(&x, 0, sizeof x);
    for (int i = 0; i < p->n; i++)
        if (is_token(e, p->f[i].v) == token)
            x.f[x.n++] = p->f[i];
    x.negative = !token && p->negative;
    x.token = token;
    x.log2 = log2;
    if (!x.n && !x.negative)
        return -1;
    for (int i = 0; i < e->npub; i++)
        if (same_published(&e->pub[i], &x))
            return i;
    if (e->npub == MAX_PUBLISHED)
        no_place(e, p->core, "too many vectors in one kernel");
    for (int i = 0; i < x.n; i++)
        x.deferred |= is_deferred(e, x.f[i].v);
    name_published(&x);
    int at = e->npub++;
    e->pub[at] = x;
    for (int i = 0; i < x.n; i++)
        if (is_deferred(e, x.f[i].v))
            use_deferred(e, x.f[i].v);
        else if (x.deferred)
            publish_one(e, x.f[i].v, false);
        else
            need(e, x.f[i].v);
    return at;
}

int publish_one(Emit *e, Ref r, bool log2)
{
    Product p = { .n = 1, .f = { { strip(e->g, r), false } } };
    return publish(e, &p, is_token(e, r), log2);
}

static int add_tile(Emit *e, Ref r, bool computed, bool direct)
{
    if (is_float(e, r) && (e->ranks > 1 || is_delayed(e, r)))
        no_place(e, r, "float32 of several ranks, or of the token before");
    for (int i = 0; i < e->ntiles; i++)
        if (e->tile[i].r == r && !e->tile[i].anchor
            && e->tile[i].computed == computed) {
            e->tile[i].direct |= direct;
            return i;
        }
    if (e->ntiles == MAX_TILES)
        no_place(e, r, "too many matrices in one kernel");
    e->tile[e->ntiles] = (Tile){ .r = r, .computed = computed,
                                .direct = direct };
    return e->ntiles++;
}

static bool is_gate(const Emit *e, Ref r)
{
    const Node *n = &e->g->n[r];
    return n->op == OP_cumsum && !(n->flags & REVERSE) && is_matrix(e, r);
}

uint32_t sources_of(Emit *e, Ref r)
{
    const Node *n = &e->g->n[r];
    uint32_t all = 0;
    if (computed_before(e, r) >= 0)
        return (uint32_t)1 << computed_before(e, r);
    if (is_tile(e, r))
        return (uint32_t)1 << add_tile(e, tile_base(e, r), false, false);
    if (is_gate(e, r) || (n->op == OP_last && is_gate(e, n->a[0]))) {
        use_gate(e, n->op == OP_last ? n->a[0] : r);
        return 0;
    }
    if (is_keyed(e, r) && n->op == OP_input) {
        use_key(e, r);
        return 0;
    }
    if (n->op == OP_dup && is_rotation(e, summed(e, r))) {
        use_turn(e, summed(e, r));
        return 0;
    }
    if (is_chain(e, summed(e, r))) {
        use_chain(e, summed(e, r));
        return 0;
    }
    if (n->op == OP_rot90)
        return sources_of(e, strip(e->g, n->a[0]));
    if (!is_entrywise(n))
        no_place(e, r, "this operation on a matrix");
    for (int i = 0; i < 3; i++) {
        Ref x = n->a[i] ? strip(e->g, n->a[i]) : 0;
        if (!x || is_vector(e, x))
            continue;
        if (!is_matrix(e, x) && !is_keyed(e, x))
            no_place(e, x, "in a matrix of other axes");
        all |= sources_of(e, x);
    }
    return all;
}

static int make_tile(Emit *e, Ref r, bool direct)
{
    r = strip(e->g, r);
    if (!is_matrix(e, r))
        no_place(e, r, "it is no matrix of tokens and one axis");
    bool whole = is_tile(e, r) && !is_compact(e, r)    /* no copy */
              && !is_float(e, r);
    int old = e->ntiles, at = add_tile(e, r, !whole, direct);
    if (at == old && e->tile[at].computed) {
        uint32_t sources = sources_of(e, r);
        e->tile[at].sources = sources;
    }
    return at;
}

int use_loaded(Emit *e, Ref r)
{
    return add_tile(e, tile_base(e, r), false, true);
}

int use_tile(Emit *e, Ref r)
{
    return make_tile(e, r, true);
}

int use_gated(Emit *e, Ref r)
{
    int at = make_tile(e, r, false);
    e->tile[at].gated = true;
    return at;
}

void use_anchor(Emit *e, Ref r, int gate)
{
    int of = use_gated(e, r);
    for (int i = 0; i < e->ntiles; i++)
        if (e->tile[i].anchor && e->tile[i].r == e->tile[of].r
            && e->tile[i].gate == gate)
            return;
    if (e->ntiles == MAX_TILES)
        no_place(e, r, "too many matrices in one kernel");
    e->tile[e->ntiles++] = (Tile){ .r = e->tile[of].r, .computed = true,
        .anchor = true, .gated = true, .gate = gate,
        .sources = (uint32_t)1 << of };
}

/* A column of what is summed up has a thread to itself. */
static void check_columns(Emit *e, Ref r)
{
    if (e->g->axis[tile_axis(e, r)].size > 128)
        no_place(e, r, "more than 128 columns");
    if (e->ranks > 1)
        no_place(e, r, "a running sum of vectors beside rows that are ranks");
}

int use_gate(Emit *e, Ref sum)
{
    Ref of = strip(e->g, e->g->n[sum].a[0]);
    for (int i = 0; i < e->ngates; i++)
        if (e->gate[i].of == of)
            return i;
    if (e->ngates == MAX_GATES)
        no_place(e, sum, "too many gates per key in one kernel");
    check_columns(e, of);
    if (has_deferred(e, of))
        no_place(e, sum, "a running sum of what is a sum along a row");
    int at = e->ngates++;
    e->gate[at] = (Gate){ .of = of };
    uint32_t sources = sources_of(e, of);
    e->gate[at].sources = sources;
    return at;
}

int use_key(Emit *e, Ref r)
{
    for (int i = 0; i < e->nkeys; i++)
        if (e->key[i] == r)
            return i;
    if (e->nkeys == MAX_KEYS)
        no_place(e, r, "too many values per key in one kernel");
    check_columns(e, r);
    if (e->g->n[r].op != OP_input)
        sources_of(e, r);
    e->key[e->nkeys] = r;
    return e->nkeys++;
}

bool is_rotation(const Emit *e, Ref r)
{
    const Graph *g = e->g;
    const Node *n = &g->n[r];
    if (n->op != OP_scan || n->a[0] || !n->a[1] || !n->a[2])
        return false;
    const Node *rate = &g->n[n->a[1]], *from = &g->n[n->a[2]];
    return rate->op == OP_input && is_keyed(e, n->a[1]) && n->flags & WRAP
        && !(n->flags & (EXCLUSIVE | REVERSE)) && from->op == OP_state;
}

int use_turn(Emit *e, Ref r)
{
    const Node *n = &e->g->n[r];
    for (int i = 0; i < e->nrotations; i++)
        if (e->rotation[i].scan == r)
            return i;
    if (e->nrotations == MAX_ROTATIONS)
        no_place(e, r, "too many angles in one kernel");
    check_columns(e, r);
    e->rotation[e->nrotations] = (Rotation){ r, n->a[1],
                                            e->g->n[n->a[2]].index };
    return e->nrotations++;
}

bool is_chain(const Emit *e, Ref r)
{
    const Node *n = &e->g->n[r];
    if (n->op != OP_scan || n->flags & (EXCLUSIVE | REVERSE)
        || is_rotation(e, r)
        || !is_matrix(e, r) || !n->a[2])
        return false;
    Ref b = strip(e->g, n->a[1]);
    return e->g->n[n->a[2]].op == OP_state
        && (!n->a[0] || is_vector(e, n->a[0]))
        && (is_matrix(e, b) || is_keyed(e, b));
}

int use_chain(Emit *e, Ref r)
{
    const Node *n = &e->g->n[r];
    for (int i = 0; i < e->nchains; i++)
        if (e->chain[i].scan == r)
            return i;
    if (e->nchains == MAX_CHAINS)
        no_place(e, r, "too many states of one axis");
    check_columns(e, r);
    if (has_deferred(e, n->a[1]) || (n->a[0] && has_deferred(e, n->a[0])))
        no_place(e, r, "a running sum of what is a sum along a row");
    int at = e->nchains++;
    e->chain[at] = (Chain){ .scan = r, .state = e->g->n[n->a[2]].index };
    uint32_t sources = sources_of(e, strip(e->g, n->a[1]));
    e->chain[at].sources = sources;
    return at;
}

int use_score(Emit *e, Score x)
{
    for (int i = 0; i < e->nscores; i++)
        if (e->score[i].root == x.root && e->score[i].vector == x.vector
            && e->score[i].rows == x.rows
            && e->score[i].inverse == x.inverse)
            return i;
    if (e->nscores == MAX_SCORES)
        no_place(e, x.root, "too many token by token matrices");
    e->score[e->nscores] = x;
    return e->nscores++;
}

/* ---- what a kernel computes, and where ---- */

static void comment_nodes(Emit *e, Buf *b, const char *role, int which)
{
    int col = 0;
    buf_printf(b, " *   %s:", role);
    for (Ref r = 1; r < e->g->len; r++) {
        const Node *n = &e->g->n[r];
        bool serial = n->states & e->serial;
        int is = n->op == OP_input ? 0 : serial ? 3 : is_score(e, r) ? 2
               : is_vector(e, r) ? 1 : 3;
        if (!e->uses[r] || n->op == OP_num || is != which)
            continue;
        if (col++ % 3 == 0)
            buf_printf(b, "\n *     ");
        buf_printf(b, " %%%u = %s", (unsigned)r, op_info[n->op].name);
        for (int i = 0; i < 4 && n->a[i]; i++)
            buf_printf(b, " %%%u", (unsigned)n->a[i]);
        buf_printf(b, ";");
    }
    buf_printf(b, "\n");
}

void emit_comment(Emit *e, Buf *b)
{
    buf_printf(b, "/* %s: %d tokens a chunk, %.0f bytes a chunk and head."
               "\n", e->out->name, e->g->chunk, e->k->bytes);
    comment_nodes(e, b, "loaded", 0);
    comment_nodes(e, b, "vector warp", 1);
    comment_nodes(e, b, "ahead", 2);
    comment_nodes(e, b, "state", 3);
    buf_printf(b, " */\n");
}
