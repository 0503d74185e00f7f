/* tokens.c -- the instructions of a kernel of single tokens.
 *
 * What is computed has a **level**: how many barriers it is behind. Values of
 * the same axes and level are one program; those that others read, or at other
 * coordinates, are left in shared memory. What lies in register tiles is
 * computed anew by who reads it, but for what states become. What no token
 * differs in is made once, before the first.
 */
#include "ranks.h"
#include "../cost.h"
#include "../eval.h"

#include <string.h>

typedef struct Tokens {
    Schedule *s;
    const KernelWish *w;
    const Graph *g;
    const int32_t (*ext)[NAXES];
    uint8_t *has;
    uint8_t *inlined;                   /* computed by the one that reads it */
    uint8_t *threads;                   /* by each for its own elements */
    uint8_t *line;                      /* an input that each thread loads so */
    int *level, deepest;
} Tokens;

bool token_constant(const Schedule *s, Ref r, double *x)
{
    const Graph *g = s->g;
    while (op_is(g->n[r].op, MOVES))
        r = g->n[r].a[0];
    *x = g->n[r].op == OP_size ? g->axis[g->n[r].index].size : g->n[r].num;
    return g->n[r].op == OP_num || g->n[r].op == OP_size;
}

bool token_found(const Schedule *s, Ref r)
{
    const Node *n = &s->g->n[r];
    double x;
    return n->op == OP_state ? !(s->k->states & STATE(n->index))
         : n->op != OP_input && !schedule_computes(s, r)
           && !token_constant(s, r, &x);
}

Ref token_shown(const Schedule *s, Ref r)
{
    while (op_is(s->g->n[r].op, MOVES) && !token_found(s, r))
        r = s->g->n[r].a[0];
    return r;
}

bool has_two_places(const Schedule *s, const KValue *v)
{
    enum { MOST = 4096 };
    return v->layout == LAY_FLAT && v->element * v->nrow <= MOST
        && ((s->g->n[v->node].op == OP_input && s->g->n[v->node].timed)
            || token_found(s, v->node));
}

bool token_brings(const Schedule *s, const KInst *k)
{
    return k->op == K_LOAD && k >= s->inst + s->tokens.first
        && has_two_places(s, &s->value[k->out[0]]);
}

/* ---- what a node is ---- */

static bool is_number(const Tokens *x, Ref r)
{
    double value;
    return token_constant(x->s, r, &value);
}

/* Computed, and not only looked at. */
static bool is_computed(const Tokens *x, Ref r)
{
    return x->has[r] && !op_is(x->g->n[r].op, MOVES | GIVEN)
        && !is_number(x, r) && !token_found(x->s, r);
}

static bool is_elementwise(const Tokens *x, Ref r)
{
    return op_info[x->g->n[r].op].traits & ELEMENTWISE;
}

/* Neither what tokens have in a chunk, nor what passes over rows. */
static bool is_of_token(const Tokens *x, Ref r)
{
    const Node *n = &x->g->n[r];
    return !op_is(n->op, RECURS | OF_RANKS | WHOLE_ROW)
        && !(n->axes & (ROW_AXES | COL_AXES))
        && (!op_is(n->op, MOVES) || n->over);
}

/* The same for all tokens. */
static bool is_before(const Tokens *x, Ref r)
{
    return !x->g->n[r].timed && !x->g->n[r].states
        && !is_regtile(x->s, r);
}

static bool is_next(const Tokens *x, Ref r)
{
    for (int i = 0; i < x->g->nst; i++)
        if (x->s->k->states & STATE(i) && x->g->st[i].next == r)
            return true;
    return false;
}

static bool is_output(const Tokens *x, Ref r)
{
    for (int i = 0; i < x->g->nout; i++)
        if (x->w->wants_out[i] && token_shown(x->s, x->g->out[i].node) == r)
            return true;
    return false;
}

static int32_t extent(const Tokens *x, Ref r, int ax)
{
    return ax == x->s->slice_axis ? block_extent(x->s, ax) : x->ext[r][ax];
}

static bool is_alike(const Tokens *x, Ref a, Ref b, AxisSet axes)
{
    bool same = x->g->n[a].axes == axes;
    for (; axes && same; axes &= axes - 1)
        same = x->ext[a][lowest(axes)] == x->ext[b][lowest(axes)];
    return same;
}

/* Whether u reads its operand o at its own coordinates alone, computed in the
 * same program if that is as early. */
static bool is_beside(const Tokens *x, Ref u, Ref o)
{
    const Node *n = &x->g->n[u];
    bool sum = token_sums(x->s, u);
    return (is_elementwise(x, u) || sum) && is_computed(x, o)
        && is_before(x, u) == is_before(x, o) && !(sum && !x->inlined[o])
        && is_alike(x, o, u, sum ? n->axes | n->over : n->axes);
}

/* ---- levels ---- */

/* Whether only u reads r, and reads it as it is. */
static bool is_only_for(const Tokens *x, Ref r, Ref u)
{
    for (Ref q = r + 1; q < x->g->len; q++)
        for (int i = 0; i < 4; i++)
            if (x->has[q] && x->g->n[q].a[i] == r && q != u)
                return false;
    return !is_next(x, r) && !is_output(x, r) && !x->w->stores[r];
}

static bool sums_all_of(const Tokens *x, Ref u, Ref r)
{
    AxisSet all = x->g->n[u].axes | x->g->n[u].over;
    bool same = x->g->n[r].axes == all;
    for (AxisSet s = all; s && same; s &= s - 1)
        for (int i = 0; i < 2; i++) {
            Ref a = x->g->n[u].a[i];
            same &= !(x->g->n[a].axes & AXIS(lowest(s)))
                 || x->ext[a][lowest(s)] == x->ext[r][lowest(s)];
        }
    return same;
}

/* Whether threads read r for their rows or columns of register tiles alone. */
static bool is_of_threads(const Tokens *x, Ref r)
{
    AxisSet regtile = x->s->tokens.regtile;
    bool own = regtile && !(x->g->n[r].axes & ~regtile) && !is_before(x, r)
            && !is_next(x, r) && !is_output(x, r) && !x->w->stores[r];

    for (AxisSet a = x->g->n[r].axes; a && own; a &= a - 1)
        own = x->ext[r][lowest(a)] == x->g->axis[lowest(a)].size;
    for (Ref u = r + 1; u < x->g->len && own; u++)
        for (int i = 0; i < 4; i++) {
            Ref a = x->g->n[u].a[i];
            if (!x->has[u] || !a || token_shown(x->s, a) != r)
                continue;
            own &= a == r && is_computed(x, u)
                && (is_regtile(x->s, u) || token_sums_regtile(x->s, u)
                    || x->threads[u]);
        }
    return own;
}

/* Exponentials and the like that r takes of what is there: of one element. */
static int hard_steps(const Tokens *x, Ref r)
{
    int n = op_info[x->g->n[r].op].traits & HARD ? 1 : 0;
    if (!is_computed(x, r) || !is_elementwise(x, r))
        return 0;
    for (int i = 0; i < op_info[x->g->n[r].op].arity; i++)
        n += hard_steps(x, x->g->n[r].a[i]);
    return n;
}

/* How many elements of it a thread has. */
static int own_elements(const Tokens *x, Ref r)
{
    AxisSet axes = x->g->n[r].axes;
    int n = axes & AXIS(x->s->tokens.row) ? (int)regtile_rows(x->s) : 1;
    return axes & AXIS(x->s->tokens.col) ? n * REGTILE_PIECE : n;
}

/* What is of threads each computes by itself, and none waits for one that does
 * it for all, unless that takes longer: MOST_HARD steps take about as long as
 * waiting does. */
static bool is_computed_twice(const Tokens *x, Ref r)
{
    enum { MOST_HARD = 8 };
    return (is_elementwise(x, r) || token_sums_regtile(x->s, r))
        && is_of_threads(x, r)
        && hard_steps(x, r) * own_elements(x, r) <= MOST_HARD;
}

static void find_inlined(Tokens *x)
{
    for (Ref r = (Ref)x->g->len - 1; r > 0; r--) {
        bool regtile = is_regtile(x->s, r);
        if (!is_computed(x, r))
            continue;
        x->threads[r] = !regtile && is_computed_twice(x, r);
        x->inlined[r] = regtile ? !is_next(x, r) : x->threads[r];
        if (regtile || x->threads[r] || !is_elementwise(x, r))
            continue;
        for (Ref u = r + 1; u < x->g->len && !x->inlined[r]; u++)
            for (int i = 0; i < 3; i++)
                x->inlined[r] |= is_computed(x, u) && x->g->n[u].a[i] == r
                    && ((token_sums(x->s, u) && !token_sums_regtile(x->s, u)
                         && sums_all_of(x, u, r))
                        || (x->inlined[u] && !is_regtile(x->s, u)
                            && is_alike(x, r, u, x->g->n[u].axes)))
                    && is_before(x, u) == is_before(x, r)
                    && is_only_for(x, r, u);
    }
}

/* How deep u must be for its operand o. */
static int level_behind(const Tokens *x, Ref u, Ref o)
{
    Ref b = token_shown(x->s, o);
    if (!is_computed(x, b) || is_before(x, b) != is_before(x, u))
        return 0;
    if (is_regtile(x->s, b))
        return x->level[b] + !x->inlined[b];
    if (x->inlined[b] || (o == b && !is_regtile(x->s, u)
                          && is_beside(x, u, b)))
        return x->level[b];
    return x->level[b] + 1;
}

static void find_levels(Tokens *x)
{
    for (Ref u = 1; u < x->g->len; u++) {
        if (!is_computed(x, u))
            continue;
        for (int i = 0; i < 4; i++) {
            int n = x->g->n[u].a[i] ? level_behind(x, u, x->g->n[u].a[i]) : 0;
            x->level[u] = n > x->level[u] ? n : x->level[u];
        }
        x->level[u] += token_sums_regtile(x->s, u);
        x->deepest = x->level[u] > x->deepest ? x->level[u] : x->deepest;
    }
    x->deepest++;
    for (Ref r = 1; r < x->g->len; r++) /* what nobody else waits for */
        if (is_regtile(x->s, r) && is_computed(x, r) && is_next(x, r)) {
            bool read = false;
            for (Ref u = r + 1; u < x->g->len; u++)
                for (int i = 0; i < 4; i++)
                    read |= x->has[u] && x->g->n[u].a[i] == r;
            x->level[r] = read ? x->level[r] : x->deepest;
        }
}

/* ---- inputs that threads load themselves ---- */

/* The earliest level at which some program computes u. */
static int computed_at(const Tokens *x, Ref u)
{
    int first = x->deepest;

    if (token_sums_regtile(x->s, u))    /* its warps' parts */
        return x->level[u] - 1;
    if (!x->inlined[u])
        return x->level[u];
    for (Ref q = u + 1; q < x->g->len; q++)
        for (int i = 0; i < 4; i++)
            if (is_computed(x, q) && x->g->n[q].a[i] == u) {
                int at = computed_at(x, q);
                first = at < first ? at : first;
            }
    return first;
}

/* What is first wanted beside the states themselves, of numbers that lie along
 * rows or columns: the first programs wait for no other thread's copies. */
static bool is_line(const Tokens *x, Ref r)
{
    AxisSet axes = x->g->n[r].axes;
    bool first = false;

    if (x->g->n[r].op != OP_input || !x->g->n[r].timed || !x->has[r]
        || x->w->in[x->g->n[r].index] == F64 || axes & (axes - 1)
        || !is_of_threads(x, r))
        return false;
    for (Ref u = r + 1; u < x->g->len; u++)
        for (int i = 0; i < 4; i++)
            if (is_computed(x, u) && x->g->n[u].a[i] == r)
                first |= computed_at(x, u) == 0;
    return first;
}

static void find_lines(Tokens *x)
{
    for (int i = 0; i < x->g->nin; i++)
        x->line[x->g->in[i].node] = is_line(x, x->g->in[i].node);
}

/* ---- values and instructions ---- */

static int32_t count_of(const Tokens *x, Ref r, AxisSet axes)
{
    int32_t n = 1;
    for (; axes; axes &= axes - 1)
        n *= extent(x, r, lowest(axes));
    return n;
}

static int value_new(Tokens *x, Ref node, Layout layout)
{
    Schedule *s = x->s;
    const Node *n = &x->g->n[node];
    KValue *v = value_add(s, (KValue){
        .node = node, .layout = (uint8_t)layout, .parts = 1, .element = 4,
        .buffer = NOTHING, .alias = NOTHING,
        .nrow = count_of(x, node, n->axes), .ncol = 1 });
    if (n->op == OP_input && x->w->in[n->index] != F64)
        v->element = (uint8_t)dtype_size(x->w->in[n->index]);
    else if (token_found(s, node) && x->w->stored16[node])
        v->element = (uint8_t)dtype_size(x->w->memory);
    if (layout == LAY_PARTIAL && n->op != OP_state)
        v->parts = (uint8_t)(n->over == AXIS(s->tokens.row)
            ? regtile_down(s) : regtile_across(s));
    return s->nvalues - 1;
}

static int value_of(Tokens *x, Ref node, Layout layout)
{
    int v = schedule_value(x->s, node, layout);
    return v == NOTHING ? value_new(x, node, layout) : v;
}

static KInst *inst_new(Tokens *x, KOp op)
{
    return inst_insert(x->s, x->s->ninsts, (KInst){
        .op = (uint8_t)op, .role = KR_MATRIX, .index = NOTHING });
}

static void reads(Tokens *x, KInst *k, int v) { inst_reads(x->s, k, v); }
static void writes(Tokens *x, KInst *k, int v) { inst_writes(x->s, k, v); }

static Layout layout_of(const Tokens *x, Ref r)
{
    return is_regtile(x->s, r) ? LAY_REGTILE : x->line[r] ? LAY_LINE : LAY_FLAT;
}

static void program_node(Tokens *x, KInst *k, Ref r, bool whole);

/* The node, and before it what is inlined in it; what others have left is read:
 * of a sum over register tiles the warps' parts. */
static void program_add(Tokens *x, KInst *k, Ref r)
{
    program_node(x, k, r, token_sums_regtile(x->s, r));
}

static void program_node(Tokens *x, KInst *k, Ref r, bool whole)
{
    const Node *n = &x->g->n[r];
    if (has_node(k, r))
        return;
    if (whole)
        reads(x, k, value_of(x, r, LAY_PARTIAL));
    for (int i = 0; i < 4 && !whole; i++) {
        Ref b = token_shown(x->s, n->a[i]);
        if (!n->a[i] || is_number(x, b) || has_node(k, b))
            continue;
        if (x->inlined[b])
            program_add(x, k, b);
        else
            reads(x, k, value_of(x, b, layout_of(x, b)));
    }
    Ref *node = ctx_alloc(x->s->c, ((size_t)k->nnodes + 1) * sizeof *node);
    if (k->nnodes)
        memcpy(node, k->node, (size_t)k->nnodes * sizeof *node);
    node[k->nnodes++] = r;
    k->node = node;
}

/* ---- programs ---- */

/* Whether some node reads r that is not of the program. */
static bool is_read_elsewhere(const Tokens *x, const KInst *k, Ref r)
{
    for (Ref u = r + 1; u < x->g->len; u++)
        for (int i = 0; i < 4; i++)
            if (x->has[u] && x->g->n[u].a[i] == r && !has_node(k, u))
                return true;
    return false;
}

/* Whether the program can store the output from its loop. */
static bool stores_from(const Tokens *x, const KInst *k, int output)
{
    const Output *o = &x->g->out[output];
    AxisSet axes = x->g->n[o->node].axes;
    bool all = has_node(k, o->node) && !x->inlined[o->node]
            && !is_before(x, o->node);
    for (int i = 0; i < o->rank; i++)
        all &= (axes & AXIS(o->order[i])) != 0;
    return all;
}

static bool is_stored_elsewhere(const Tokens *x, const KInst *k, Ref r)
{
    for (int i = 0; i < x->g->nout; i++)
        if (x->w->wants_out[i] && token_shown(x->s, x->g->out[i].node) == r
            && !stores_from(x, k, i))
            return true;
    return false;
}

/* Whether each token's r is kept for kernels behind from the program's loop. */
static bool keeps_from(const Tokens *x, const KInst *k, Ref r)
{
    return x->w->stores[r] && has_node(k, r) && !is_before(x, r);
}

static bool is_kept_elsewhere(const Tokens *x, const KInst *k, Ref b)
{
    for (Ref r = b; r < x->g->len; r++)
        if (x->w->stores[r] && x->has[r] && token_shown(x->s, r) == b
            && !keeps_from(x, k, r))
            return true;
    return false;
}

static bool is_of_program(const Tokens *x, Ref r, Ref first, bool before)
{
    return is_computed(x, r) && !x->inlined[r] && is_before(x, r) == before
        && x->level[r] == x->level[first]
        && is_alike(x, r, first, x->g->n[first].axes);
}

static void select_map(Tokens *x, Ref first, bool before)
{
    int at = x->s->ninsts;
    KInst *k = inst_new(x, K_MAP);
    for (Ref r = first; r < x->g->len; r++)
        if (is_of_program(x, r, first, before))
            program_add(x, k, r);
    for (int i = 0; i < k->nnodes; i++) {
        Ref r = k->node[i];
        if (!x->inlined[r] && (is_next(x, r) || is_read_elsewhere(x, k, r)
                               || is_stored_elsewhere(x, k, r)
                               || is_kept_elsewhere(x, k, r)))
            writes(x, &x->s->inst[at], value_of(x, r, layout_of(x, r)));
    }
}

static void select_partials(Tokens *x, int level)
{
    for (Ref r = 1; r < x->g->len; r++)
        if (is_computed(x, r) && token_sums_regtile(x->s, r)
            && x->level[r] == level + 1) {
            KInst *k = inst_new(x, K_PARTIAL);
            program_node(x, k, r, false);
            writes(x, k, value_of(x, r, LAY_PARTIAL));
        }
}

static void select_maps(Tokens *x, int level, bool before, bool regtile)
{
    for (Ref r = 1; r < x->g->len; r++) {
        bool first = is_computed(x, r) && !x->inlined[r] && x->level[r] == level
                  && is_before(x, r) == before
                  && is_regtile(x->s, r) == regtile;
        for (Ref q = 1; q < r && first; q++)
            first = !is_of_program(x, q, r, before);
        if (first)
            select_map(x, r, before);
    }
}

/* Of inputs that some instruction reads. */
static void select_load(Tokens *x, Ref r, bool before, bool large)
{
    int v = value_of(x, r, layout_of(x, r));
    if (before || has_two_places(x->s, &x->s->value[v]) != large)
        writes(x, inst_new(x, K_LOAD), v);
}

static void select_loads(Tokens *x, bool before, bool large)
{
    for (int i = 0; i < x->g->nin; i++) {
        Ref r = x->g->in[i].node;
        if (x->has[r] && !x->g->n[r].timed == before)
            select_load(x, r, before, large);
    }
}

static bool is_read(const Tokens *x, Ref r)
{
    bool any = is_next(x, r) || is_output(x, r);
    for (int i = 0; i < x->s->k->nnodes && !any; i++)
        for (int j = 0; j < 4; j++)
            any |= x->g->n[x->s->k->node[i]].a[j] == r;
    return any;
}

static void select_found(Tokens *x, bool large)
{
    for (Ref r = 1; r < x->g->len; r++)
        if (token_found(x->s, r) && is_read(x, r))
            select_load(x, r, false, large);
}

/* What is kept for kernels behind: states as the token finds them; what no
 * program keeps. */
static void select_kept(Tokens *x, bool states)
{
    for (Ref r = 1; r < x->g->len; r++) {
        Ref b = token_shown(x->s, r);
        bool done = !x->w->stores[r] || !x->has[r]
                 || (x->g->n[r].op == OP_state) != states;
        for (int i = 0; i < x->s->ninsts && !done; i++)
            done = x->s->inst[i].op == K_MAP
                && keeps_from(x, &x->s->inst[i], r);
        if (done)
            continue;
        KInst *k = inst_new(x, K_STORE);
        k->node = ctx_alloc(x->s->c, sizeof *k->node);
        k->node[k->nnodes++] = r;
        if (!is_number(x, b))
            reads(x, k, value_of(x, b, layout_of(x, b)));
    }
}

static void select_outputs(Tokens *x)
{
    for (int i = 0; i < x->g->nout; i++) {
        Ref r = x->g->out[i].node, b = token_shown(x->s, r);
        bool done = !x->w->wants_out[i];
        for (int n = 0; n < x->s->ninsts && !done; n++)
            done = x->s->inst[n].op == K_MAP
                && stores_from(x, &x->s->inst[n], i);
        if (done)
            continue;
        KInst *k = inst_new(x, K_STORE);
        k->index = (int16_t)i;
        if (!is_number(x, b))
            reads(x, k, value_of(x, b, LAY_FLAT));
    }
}

/* ---- states ---- */

static void begin_states(Tokens *x, KOp op)
{
    for (int i = 0; i < x->g->nst; i++)
        if (x->s->k->states & STATE(i)) {
            KInst *k = inst_new(x, op);
            int v = value_of(x, x->g->st[i].node,
                             layout_of(x, x->g->st[i].node));
            k->index = (int16_t)i;
            if (op == K_BEGIN)
                writes(x, k, v);
            else
                reads(x, k, v);
        }
}

/* Whether all that the program does with r is to read it at the coordinates in
 * hand, behind its sums. */
static bool reads_as_is(const Tokens *x, const KInst *k, Ref r)
{
    bool as_is = true;
    for (int i = 0; i < k->nnodes; i++)
        for (int j = 0; j < 4; j++) {
            Ref a = x->g->n[k->node[i]].a[j];
            if (a && token_shown(x->s, a) == r)
                as_is &= a == r && is_elementwise(x, k->node[i])
                      && !x->inlined[k->node[i]]
                      && is_alike(x, r, k->node[i],
                                  x->g->n[k->node[i]].axes);
        }
    return as_is;
}

/* What becomes of a state is written over it where nobody reads it later. */
static bool write_over(Tokens *x, int state)
{
    Schedule *s = x->s;
    Ref r = x->g->st[state].node, next = x->g->st[state].next;
    int from = schedule_value(s, r, layout_of(x, r));
    int to = is_computed(x, next) ? schedule_value(s, next, layout_of(x, next))
                              : NOTHING;
    int writer = NOTHING, last = NOTHING;
    if (to == NOTHING || s->value[to].alias != NOTHING
        || !is_alike(x, next, r, x->g->n[r].axes))
        return false;
    for (int i = 0; i < s->ninsts; i++) {
        const KInst *k = &s->inst[i];
        for (int j = 0; j < k->nout; j++)
            writer = k->out[j] == to ? i : writer;
        for (int j = 0; j < k->nin; j++)
            last = k->in[j] == from ? i : last;
    }
    for (int i = 0; i < x->g->nst; i++) /* it moves to another state, too */
        if (i != state && x->s->k->states & STATE(i)
            && token_shown(x->s, x->g->st[i].next) == r)
            return false;
    bool ok = writer >= s->tokens.first
           && (writer > last || (writer == last && (is_regtile(s, r)
              || reads_as_is(x, &s->inst[writer], r))));
    if (ok)
        s->value[to].alias = (int16_t)from;
    return ok;
}

/* Those that are not: all register tiles at once; of others, what was a state
 * or lies elsewhere first goes to a place of its own. */
static void carry_states(Tokens *x)
{
    Schedule *s = x->s;
    KInst *regtile = NULL;
    bool done[MAX_STATES] = { false };
    for (int i = 0; i < x->g->nst; i++) {
        Ref r = x->g->st[i].node, next = x->g->st[i].next;
        done[i] = !(s->k->states & STATE(i)) || next == r
               || write_over(x, i);
    }
    for (int i = 0; i < x->g->nst; i++)
        if (!done[i] && is_regtile(s, x->g->st[i].node)) {
            regtile = regtile ? regtile : inst_new(x, K_CARRY);
            reads(x, regtile, value_of(x, x->g->st[i].next, LAY_REGTILE));
            writes(x, regtile, value_of(x, x->g->st[i].node, LAY_REGTILE));
        }
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < x->g->nst; i++) {
            Ref r = x->g->st[i].node, b;
            if (done[i] || is_regtile(s, r))
                continue;
            b = token_shown(x->s, x->g->st[i].next);
            KInst *k = inst_new(x, K_CARRY);
            k->index = (int16_t)i;
            if (round == 0) {
                if (!is_number(x, b))
                    reads(x, k, value_of(x, b, LAY_FLAT));
                writes(x, k, value_of(x, r, LAY_PARTIAL));
            } else {
                reads(x, k, value_of(x, r, LAY_PARTIAL));
                writes(x, k, value_of(x, r, LAY_FLAT));
            }
        }
}

/* ---- places ---- */

static bool in_shared(const KValue *v)
{
    return v->layout != LAY_REGTILE && v->layout != LAY_LINE;
}

static int32_t bytes_of(const Schedule *s, const KValue *v)
{
    enum { ALIGN = 16 };
    int32_t n = v->element * v->nrow * v->parts;
    n = (n + ALIGN - 1) / ALIGN * ALIGN;
    return has_two_places(s, v) ? 2 * n : n;
}

static bool meet(const Schedule *s, const KValue *v, const KValue *u)
{
    return in_shared(v) && in_shared(u) && v->spilled == u->spilled
        && v->at < u->at + bytes_of(s, u) && u->at < v->at + bytes_of(s, v);
}

/* The instructions from which to which a value has its place: what is there
 * before the first token, or comes from memory, has it always. */
static void interval(const Schedule *s, int value, bool roomy, int *first,
                     int *last)
{
    *first = s->ninsts;
    *last = -1;
    for (int i = 0; i < s->ninsts; i++) {
        const KInst *k = &s->inst[i];
        bool used = false;
        for (int j = 0; j < k->nin; j++)
            used |= fragment_root(s, k->in[j]) == value;
        for (int j = 0; j < k->nout; j++)
            used |= fragment_root(s, k->out[j]) == value;
        if (!used)
            continue;
        bool always = roomy || i < s->tokens.first || k->op == K_LOAD;
        *first = always ? 0 : i < *first ? i : *first;
        *last = always ? s->ninsts : i > *last ? i : *last;
    }
}

/* First fit. roomy: small ones have places of their own, as sharing one would
 * take a barrier. */
static void place_values(Schedule *s, bool roomy)
{
    enum { SMALL = 2048 };
    s->shared = 0;
    s->spill = 0;
    for (int v = 0; v < s->nvalues; v++) {
        KValue *k = &s->value[v];
        int first[2], last[2];
        if (!in_shared(k) || k->alias != NOTHING)
            continue;
        k->at = k->spilled ? (int32_t)s->spill : 0;
        s->spill += k->spilled ? bytes_of(s, k) : 0;
        if (k->spilled)
            continue;
        interval(s, v, roomy && bytes_of(s, k) <= SMALL, &first[0], &last[0]);
        for (int u = 0; u < v; u++) {
            const KValue *o = &s->value[u];
            interval(s, u, roomy && bytes_of(s, o) <= SMALL, &first[1],
                     &last[1]);
            if (o->alias != NOTHING || first[1] > last[0]
                || first[0] > last[1] || !meet(s, k, o))
                continue;
            k->at = o->at + bytes_of(s, o);
            u = -1;                     /* from the first on again */
        }
        int32_t end = k->at + bytes_of(s, k);
        s->shared = end > s->shared ? end : s->shared;
    }
    for (int v = 0; v < s->nvalues; v++)
        if (s->value[v].alias != NOTHING) {
            s->value[v].at = s->value[fragment_root(s, v)].at;
            s->value[v].spilled = s->value[fragment_root(s, v)].spilled;
        }
}

/* The largest value leaves shared memory. */
static void spill(Schedule *s)
{
    KValue *most = NULL;
    for (int v = 0; v < s->nvalues; v++) {
        KValue *k = &s->value[v];
        if (in_shared(k) && k->alias == NOTHING && !k->spilled
            && (!most || bytes_of(s, k) > bytes_of(s, most)))
            most = k;
    }
    most->spilled = true;
}

static void find_places(Schedule *s)
{
    place_values(s, true);
    if (s->shared > s->target->shared)
        place_values(s, false);
    while (s->shared > s->target->shared) {
        spill(s);
        place_values(s, false);
    }
}

/* ---- barriers ---- */

static bool overlap(const Schedule *s, int a, int b)
{
    return meet(s, &s->value[a], &s->value[b]);
}

static bool any_overlap(const Schedule *s, const int16_t *a, int na,
                        const int16_t *b, int nb)
{
    for (int i = 0; i < na; i++)
        for (int j = 0; j < nb; j++)
            if (overlap(s, a[i], b[j]))
                return true;
    return false;
}

/* Whether one of the two, of which threads may do the second while others are
 * still at the first, writes what the other uses. */
static bool must_wait(const Schedule *s, const KInst *a, const KInst *b)
{
    return any_overlap(s, a->out, a->nout, b->in, b->nin)
        || any_overlap(s, a->out, a->nout, b->out, b->nout)
        || any_overlap(s, a->in, a->nin, b->out, b->nout);
}

/* Besides those that stand behind each token. What is brought for a token has
 * come where it waits first. */
static void put_barriers(Schedule *s)
{
    KInst sync = { .op = K_SYNC, .role = KR_MATRIX, .index = NOTHING };
    for (int from = 0, i = 0; i < s->ninsts; i++) {
        bool wait = false;
        if (i == s->tokens.first)
            while (token_brings(s, &s->inst[i]))
                i++;
        for (int j = from; j < i; j++)
            wait |= must_wait(s, &s->inst[j], &s->inst[i]);
        if (!wait)
            continue;
        inst_insert(s, i, sync);
        s->tokens.first += i < s->tokens.first;
        from = i + 1;
    }
}

static bool is_written_before(const Schedule *s, int value, int before)
{
    for (int i = 0; i < before; i++)
        for (int j = 0; j < s->inst[i].nout; j++)
            if (s->inst[i].out[j] == value)
                return true;
    return false;
}

static const char *order_fault(const Schedule *s)
{
    for (int i = 0, from = 0; i < s->ninsts; i++) {
        const KInst *k = &s->inst[i];
        for (int j = 0; j < k->nin; j++)
            if (!is_written_before(s, k->in[j], i))
                return "a value is read that nobody has written";
        if (k->op == K_SYNC)
            from = i;
        for (int j = from; j < i; j++)
            if (!token_brings(s, k) && must_wait(s, &s->inst[j], k))
                return "no barrier before what another thread uses";
    }
    return NULL;
}

const char *schedule_check_tokens(const Schedule *s)
{
    int first[2], last[2];
    for (int v = 0; v < s->nvalues; v++)
        for (int u = 0; u < v; u++) {
            interval(s, v, false, &first[0], &last[0]);
            interval(s, u, false, &first[1], &last[1]);
            if (s->value[v].alias == NOTHING && s->value[u].alias == NOTHING
                && first[0] <= last[1] && first[1] <= last[0]
                && overlap(s, v, u))
                return "two values lie in one place";
        }
    return order_fault(s);
}

/* ---- slices ---- */

static bool mixes(const Tokens *x, Ref r, int ax)
{
    const Node *n = &x->g->n[r];
    AxisSet own = n->axes, has = AXIS(ax);

    for (int i = 0; i < 4; i++)
        own |= x->g->n[n->a[i]].axes;
    return own & has && (n->over & has
                         || (op_has(n->op, TO_AXIS) && n->index == ax));
}

static bool can_slice(const Tokens *x, int ax)
{
    bool carried = false;

    for (int i = 0; i < x->g->nst; i++)
        carried |= x->s->k->states & STATE(i)
                && x->g->st[i].axes & AXIS(ax);
    for (int i = 0; i < x->s->k->nnodes && carried; i++) {
        Ref r = x->s->k->node[i];
        carried = !mixes(x, r, ax) && (!(x->g->n[r].axes & AXIS(ax))
                  || x->ext[r][ax] == x->g->axis[ax].size);
    }
    return carried;
}

/* The axis that blocks share out into most parts: each computes the rest by
 * itself, which is little of a single token. */
static void find_slices(Tokens *x)
{
    enum { LEAST = 32 };
    Schedule *s = x->s;

    s->slices = 1;
    for (int ax = AX_DIM; ax < x->g->naxes; ax++) {
        int32_t size = x->g->axis[ax].size, slice = size;
        if (!can_slice(x, ax))
            continue;
        while (slice % 16 == 0 && slice / 2 >= LEAST)
            slice /= 2;
        if (size / slice <= s->slices)
            continue;
        s->slice_axis = ax;
        s->slices = size / slice;
    }
}

/* ---- all of it ---- */

static const char *find_fault(Tokens *x)
{
    if (x->s->kind == K_TOKEN)
        return "all tokens at once, one by one";
    for (int i = 0; i < x->s->k->nnodes; i++) {
        Ref r = x->s->k->node[i];
        if (!is_of_token(x, r) || x->w->lies_transposed[r]) {
            const char *ranks = ranks_fault(x->s->c, x->g);
            return ranks ? ranks
                 : ctx_format(x->s->c, "%%%u = %s: of a single token",
                              (unsigned)r, op_info[x->g->n[r].op].name);
        }
    }
    return NULL;
}

bool schedule_tokens(Schedule *s, const KernelWish *w)
{
    enum { THREADS = 128, WARP_SIZE = 32, MOST_REGS = 255 };
    size_t n = s->g->len;
    Tokens x = { .s = s, .w = w, .g = s->g,
                 .ext = graph_extents(s->c, s->g) };

    x.has = ctx_alloc(s->c, n);
    x.inlined = ctx_alloc(s->c, n);
    x.threads = ctx_alloc(s->c, n);
    x.line = ctx_alloc(s->c, n);
    x.level = ctx_alloc(s->c, n * sizeof *x.level);
    for (int i = 0; i < s->k->nnodes; i++) {
        Ref r = s->k->node[i];
        x.has[r] = 1;
        for (int a = 0; a < 4; a++)
            x.has[s->g->n[r].a[a]] |= op_is(s->g->n[s->g->n[r].a[a]].op, GIVEN);
    }
    s->why = find_fault(&x);
    if (s->why)
        return false;
    s->tokens.threads = THREADS;
    find_slices(&x);
    if (s->p->nkernels == 1)            /* whose threads are the module's */
        schedule_regtile(s, w);
    else
        s->resident = 4;
    find_inlined(&x);
    find_levels(&x);
    find_lines(&x);
    begin_states(&x, K_BEGIN);
    select_loads(&x, true, false);
    for (int i = 0; i <= x.deepest; i++)
        select_maps(&x, i, true, false);
    s->tokens.first = s->ninsts;
    for (int large = 0; large < 2; large++) {
        select_loads(&x, false, large);
        select_found(&x, large);
    }
    select_kept(&x, true);
    for (int i = 0; i <= x.deepest; i++) {
        select_maps(&x, i, false, false);
        select_partials(&x, i);
        select_maps(&x, i, false, true);
    }
    select_kept(&x, false);
    select_outputs(&x);
    carry_states(&x);
    begin_states(&x, K_END);
    s->warps[KR_MATRIX] = (uint8_t)(s->tokens.threads / WARP_SIZE);
    if (s->why)
        return false;
    find_places(s);
    put_barriers(s);
    int threads = s->resident * s->tokens.threads;
    int regs = s->target->regs / threads / s->target->reg_step
             * s->target->reg_step;
    s->regs[0] = s->regs[1] = regs < MOST_REGS ? regs : MOST_REGS;
    s->why = schedule_check_tokens(s);
    return !s->why;
}
