/* tokens.c -- the instructions of a kernel whose warps all do the same: of
 * single tokens, or of chunks that no roles share out.
 *
 * What is computed has a **level**: how many barriers it is behind. Values of
 * the same axes and level are one program; those that others read, or at other
 * coordinates, are left in shared memory. What lies in register tiles is
 * computed anew by who reads it, but for what states become. What no token
 * differs in is made once, before the first. Of a chunk's nodes some have an
 * instruction of their own (flat.c).
 */
#include "schedule.h"
#include "../cost.h"
#include "../eval.h"

#include <string.h>

typedef struct Tokens {
    Schedule *s;
    const KernelWish *w;
    const Graph *g;
    uint8_t *has;
    uint8_t *inlined;                   /* computed by the one that reads it */
    uint8_t *threads;                   /* by each for its own elements */
    uint8_t *beside;                    /* and by whoever makes what reads it */
    uint8_t *others;                    /* for elements that they do not have
                                           in registers */
    uint8_t *line;                      /* an input that each thread loads so */
    uint8_t *before;                    /* the same for all items */
    uint8_t *op;                        /* KOp: the instruction it has for
                                           itself; K_MAP: none */
    uint8_t *taken;                     /* some program has it */
    int *level, deepest;
} Tokens;

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

static bool is_before(const Tokens *x, Ref r)
{
    return x->before[r];
}

/* The same for all items, where there are several: of chunks, whatever their
 * length. */
static void find_before(Tokens *x)
{
    for (Ref r = 1; r < x->g->len; r++) {
        const Node *n = &x->g->n[r];
        bool before = !x->w->single && !n->timed && !n->states
                   && !is_regtile(x->s, r);
        if (has_rows(x->s))
            before &= n->op != OP_state && !op_is(n->op, ONE_ROW)
                   && !(n->flags & REVERSE)
                   && !(n->over & (AXIS(AX_I) | AXIS(AX_J)))
                   && !token_found(x->s, r);
        for (int i = 0; i < 4 && before && has_rows(x->s); i++)
            before = !n->a[i] || x->before[n->a[i]];
        x->before[r] = before;
    }
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

static bool is_alike(const Tokens *x, Ref a, Ref b, AxisSet axes)
{
    bool same = x->g->n[a].axes == axes;
    for (; axes && same; axes &= axes - 1)
        same = x->s->ext[a][lowest(axes)] == x->s->ext[b][lowest(axes)];
    return same;
}

/* Whether it is a sum, under decays or not. */
static bool adds_up(const Tokens *x, Ref r)
{
    return token_sums(x->s, r) || is_decayed_contraction(x->g->n[r].op);
}

/* Whether u reads its operand o at its own coordinates alone, computed in the
 * same program if that is as early. */
static bool is_beside(const Tokens *x, Ref u, Ref o)
{
    const Node *n = &x->g->n[u];
    bool sum = token_sums(x->s, u);
    return (is_elementwise(x, u) || sum) && is_computed(x, o)
        && x->op[o] == K_MAP
        && is_before(x, u) == is_before(x, o) && !(sum && !x->inlined[o])
        && is_alike(x, o, u, sum ? n->axes | n->over : n->axes);
}

/* ---- factors ---- */

/* A matrix that nobody but products reads: these round it, and it lies so. Not
 * float16, in which it may be too large. */
static bool is_factor(const Tokens *x, Ref r)
{
    const Node *n = &x->g->n[r];
    bool alone = has_rows(x->s) && x->s->tile == BF16 && !is_exact(x->s)
              && is_computed(x, r) && n->axes & (n->axes - 1)
              && (x->op[r] == K_MAP || x->op[r] == K_PRODUCT)
              && !is_next(x, r) && !is_output(x, r);
    for (Ref u = r; u < x->g->len && alone; u++) {
        alone &= !x->has[u] || !x->w->stores[u] || token_shown(x->s, u) != r;
        for (int i = 0; i < 4; i++) {
            Ref a = x->g->n[u].a[i];
            if (x->has[u] && a && token_shown(x->s, a) == r
                && !op_is(x->g->n[u].op, MOVES))
                alone &= is_computed(x, u) && x->op[u] == K_PRODUCT;
        }
    }
    for (int i = 0; i < x->g->nst; i++)
        alone &= token_shown(x->s, x->g->st[i].next) != r;
    return alone;
}

static void find_factors(Tokens *x)
{
    uint8_t *factor = ctx_alloc(x->s->c, x->g->len);
    for (Ref r = 1; r < x->g->len; r++)
        factor[r] = is_factor(x, r);
    x->s->factor = factor;
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
                 || x->s->ext[a][lowest(s)] == x->s->ext[r][lowest(s)];
        }
    return same;
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

/* Whether u is made, element by element, by whichever threads, and each of
 * these can make its operand r, too. */
static bool makes_beside(const Tokens *x, Ref u, Ref r)
{
    bool all = is_elementwise(x, u) && !x->inlined[u] && !is_regtile(x->s, u)
            && !is_before(x, u) && !(x->g->n[r].axes & ~x->g->n[u].axes)
            && (x->g->n[r].axes == x->g->n[u].axes || !x->g->n[r].axes
                || !hard_steps(x, r));
    for (AxisSet a = x->g->n[r].axes; a && all; a &= a - 1)
        all = x->s->ext[r][lowest(a)] == x->s->ext[u][lowest(a)];
    return all;
}

/* Whether threads read r for their rows or columns of register tiles, or for
 * elements that they make of it, alone. */
static bool is_of_threads(const Tokens *x, Ref r)
{
    AxisSet regtile = x->s->tokens.regtile;
    bool own = regtile && !(x->g->n[r].axes & ~regtile) && !is_before(x, r)
            && !is_next(x, r) && !is_output(x, r) && !x->w->stores[r];

    for (AxisSet a = x->g->n[r].axes; a && own; a &= a - 1)
        own = x->s->ext[r][lowest(a)] == x->g->axis[lowest(a)].size;
    for (Ref u = r + 1; u < x->g->len && own; u++)
        for (int i = 0; i < 4; i++) {
            Ref a = x->g->n[u].a[i];
            if (!x->has[u] || !a || token_shown(x->s, a) != r)
                continue;
            own &= a == r && is_computed(x, u)
                && (is_regtile(x->s, u) || token_sums_parts(x->s, u)
                    || x->threads[u] || makes_beside(x, u, r));
        }
    return own;
}

/* How many elements of it a thread makes: rows are dealt over the lanes that
 * have the same. */
static int own_elements(const Tokens *x, Ref r)
{
    AxisSet axes = x->g->n[r].axes;
    int pieces = x->s->tokens.warp_cols / REGTILE_PIECE;
    int rows = ((int)regtile_rows(x->s) + pieces - 1) / pieces;
    int n = axes & AXIS(x->s->tokens.row) ? rows : 1;
    return axes & AXIS(x->s->tokens.col) ? n * REGTILE_PIECE : n;
}

/* What is of threads each computes by itself, and none waits for one that does
 * it for all, unless that takes longer: MOST_HARD steps take about as long as
 * waiting does. */
static bool is_computed_twice(const Tokens *x, Ref r)
{
    enum { MOST_HARD = 8 };
    return (is_elementwise(x, r) || token_sums_parts(x->s, r))
        && is_of_threads(x, r)
        && hard_steps(x, r) * own_elements(x, r) <= MOST_HARD;
}

/* Whether a program that is not of threads' own elements makes r. */
static bool is_made_beside(const Tokens *x, Ref r)
{
    for (Ref u = r + 1; u < x->g->len; u++)
        for (int i = 0; i < 4; i++)
            if (is_computed(x, u) && x->g->n[u].a[i] == r
                && (makes_beside(x, u, r)
                    || (x->beside[u] && !token_sums_parts(x->s, u))))
                return true;
    return false;
}

static void find_inlined(Tokens *x)
{
    for (Ref r = (Ref)x->g->len - 1; r > 0; r--) {
        bool regtile = is_regtile(x->s, r);
        if (!is_computed(x, r))
            continue;
        x->threads[r] = !regtile && is_computed_twice(x, r);
        x->beside[r] = x->threads[r] && is_made_beside(x, r);
        x->inlined[r] = regtile ? !is_next(x, r) : x->threads[r];
        if (regtile || x->threads[r] || !is_elementwise(x, r))
            continue;
        for (Ref u = r + 1; u < x->g->len && !x->inlined[r]; u++)
            for (int i = 0; i < 3; i++)
                x->inlined[r] |= is_computed(x, u) && x->g->n[u].a[i] == r
                    && ((token_sums(x->s, u) && !token_sums_parts(x->s, u)
                         && x->op[u] == K_MAP && sums_all_of(x, u, r))
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
    if (x->inlined[b])
        return x->level[b];
    bool same = o == b && !is_regtile(x->s, u) && is_beside(x, u, b);
    return x->level[b] + (!same || x->beside[u]);
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
        x->level[u] += token_sums_parts(x->s, u);
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

/* ---- sums of vectors ---- */

/* Along rows or columns of register tiles alone, whole: then nobody waits for
 * the warp that adds it up for all, nor it for what others load. */
static bool is_of_vectors(const Tokens *x, Ref r)
{
    const Node *n = &x->g->n[r];
    AxisSet regtile = x->s->tokens.regtile, over = n->over;
    bool all = is_computed(x, r) && token_sums(x->s, r) && regtile
            && op_is(n->op, ADDS_UP) && !is_before(x, r)
            && over & regtile && !(over & (over - 1)) && !(n->axes & regtile);
    for (int i = 0; i < op_info[n->op].arity && all; i++)
        all = !(x->g->n[n->a[i]].axes & regtile & ~over)
           && (!(x->g->n[n->a[i]].axes & over)
               || x->s->ext[n->a[i]][lowest(over)]
                  == x->g->axis[lowest(over)].size);
    return all;
}

static void find_vector_sums(Tokens *x)
{
    uint8_t *of = ctx_alloc(x->s->c, x->g->len);

    for (Ref r = 1; r < x->g->len; r++)
        of[r] = is_of_vectors(x, r);
    x->s->tokens.of_vectors = of;
}

/* ---- inputs that threads load themselves ---- */

/* The earliest level at which some program computes u. */
static int computed_at(const Tokens *x, Ref u)
{
    int first = x->deepest;

    if (token_sums_parts(x->s, u))    /* its warps' parts */
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

static bool is_of_program(const Tokens *x, Ref r, Ref first, bool before)
{
    return is_computed(x, r) && !x->inlined[r] && is_before(x, r) == before
        && x->level[r] == x->level[first] && x->op[r] == K_MAP
        && !x->taken[r] && is_alike(x, r, first, x->g->n[first].axes);
}

/* Whether the program that u is of makes columns, of what threads have of these
 * alone: who has the first row makes those that it has. */
static bool is_of_columns(const Tokens *x, Ref u)
{
    int col = x->s->tokens.col;
    bool all = x->s->tokens.regtile && x->g->n[u].axes == AXIS(col)
            && x->s->ext[u][col] == x->g->axis[col].size && !is_before(x, u);
    for (Ref r = 1; r < x->g->len && all; r++)
        all = !is_of_program(x, r, u, false) || is_elementwise(x, r)
           || token_sums_parts(x->s, r);
    return all;
}

/* Whether r is read for elements that the thread does not have in registers. */
static bool is_read_by_others(const Tokens *x, Ref r)
{
    for (Ref u = r + 1; u < x->g->len; u++)
        for (int i = 0; i < 4; i++)
            if (is_computed(x, u) && x->g->n[u].a[i] == r
                && !token_sums_parts(x->s, u) && !is_regtile(x->s, u)
                && (x->inlined[u] ? x->others[u] : !is_of_columns(x, u)))
                return true;
    return false;
}

/* What is first wanted beside the states themselves, of numbers that lie along
 * rows or columns: the first programs wait for no other thread's copies. Of a
 * token that no other follows all such, while there are registers: no copies
 * stand before the states' loads then. */
static bool is_line(const Tokens *x, Ref r)
{
    AxisSet axes = x->g->n[r].axes;
    bool first = x->w->single && !x->w->spilled;

    if (x->g->n[r].op != OP_input || is_before(x, r) || !x->has[r]
        || x->w->in[x->g->n[r].index] == F64 || axes & (axes - 1)
        || !is_of_threads(x, r) || is_read_by_others(x, r))
        return false;
    for (Ref u = r + 1; u < x->g->len; u++)
        for (int i = 0; i < 4; i++)
            if (is_computed(x, u) && x->g->n[u].a[i] == r)
                first |= computed_at(x, u) == 0;
    return first;
}

static void find_lines(Tokens *x)
{
    for (Ref r = (Ref)x->g->len - 1; r > 0; r--)
        x->others[r] = is_computed(x, r) && is_read_by_others(x, r);
    for (int i = 0; i < x->g->nin; i++)
        x->line[x->g->in[i].node] = is_line(x, x->g->in[i].node);
}

/* ---- values and instructions ---- */

static int value_new(Tokens *x, Ref node, Layout layout)
{
    Schedule *s = x->s;
    const Node *n = &x->g->n[node];
    int32_t st[NAXES];
    KValue *v = value_add(s, (KValue){
        .node = node, .layout = (uint8_t)layout, .parts = 1, .element = 4,
        .buffer = NOTHING, .alias = NOTHING,
        .nrow = flat_strides(s, node, st), .ncol = 1 });
    if (layout == LAY_FLAT || layout == LAY_LINE)
        v->element = (uint8_t)dtype_size(flat_type(s, node));
    if (layout == LAY_PARTIAL && sums_by_block(s, node))
        v->nrow = s->tokens.threads / WARP_LANES;
    else if (x->op[node] == K_SOLVE && layout == LAY_PARTIAL)
        v->nrow = flat_count(s, node, n->axes & solve_rows(x->g, n))
                * INVERSE_PITCH;
    else if (layout == LAY_PARTIAL && n->op != OP_state)
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
    program_node(x, k, r, token_sums_parts(x->s, r));
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

/* Whether some node reads r that is not of the program, or of others, too. */
static bool is_read_elsewhere(const Tokens *x, const KInst *k, Ref r)
{
    for (Ref u = r + 1; u < x->g->len; u++)
        for (int i = 0; i < 4; i++)
            if (x->has[u] && x->g->n[u].a[i] == r
                && (!has_node(k, u)
                    || (x->inlined[u] && is_read_elsewhere(x, k, u))))
                return true;
    return false;
}

/* Whether the program can store the output from its loop. */
static bool stores_from(const Tokens *x, const KInst *k, int output)
{
    const Output *o = &x->g->out[output];
    AxisSet axes = x->g->n[o->node].axes;
    bool all = has_node(k, o->node) && !x->inlined[o->node]
            && !is_before(x, o->node)
            && (!has_rows(x->s) || axes & AXIS(AX_I));
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

/* Whether what r reads of its level is the program's, or one's before. */
static bool is_ready(const Tokens *x, const KInst *k, Ref r)
{
    bool ready = true;
    for (int i = 0; i < 4 && ready; i++) {
        Ref b = token_shown(x->s, x->g->n[r].a[i]);
        if (!is_computed(x, b) || is_before(x, b) != is_before(x, r)
            || x->level[b] < x->level[r])
            continue;
        ready = x->inlined[b] ? is_ready(x, k, b)
                              : x->taken[b] || has_node(k, b);
    }
    return ready;
}

/* Of a chunk, where sums are not computed beside other values: those may be
 * many, and are one thread's each. */
static bool joins(const Tokens *x, const KInst *k, Ref first, Ref r)
{
    enum { MOST = 24 };
    return is_ready(x, k, r)
        && (!has_rows(x->s) || (k->nnodes < MOST && k->nin < MOST
                                && adds_up(x, first) == adds_up(x, r)));
}

static void select_map(Tokens *x, Ref first, bool before)
{
    int at = x->s->ninsts;
    KInst *k = inst_new(x, K_MAP);
    for (Ref r = first; r < x->g->len; r++)
        if (is_of_program(x, r, first, before) && joins(x, k, first, r))
            program_add(x, k, r);
    k->columns = !before && is_of_columns(x, first);
    for (int i = 0; i < k->nnodes; i++)
        x->taken[k->node[i]] = 1;
    for (int i = 0; i < k->nnodes; i++)
        if (sums_by_block(x->s, k->node[i]))
            writes(x, &x->s->inst[at], value_of(x, k->node[i], LAY_PARTIAL));
    for (int i = 0; i < k->nnodes; i++) {
        Ref r = k->node[i];
        if (!x->inlined[r] && (is_next(x, r) || is_read_elsewhere(x, k, r)
                               || is_stored_elsewhere(x, k, r)
                               || is_kept_elsewhere(x, k, r)))
            writes(x, &x->s->inst[at], value_of(x, r, layout_of(x, r)));
    }
}

/* Sums of a level at once, but those of ranks. */
static void select_partials(Tokens *x, int level)
{
    AxisSet regtile = x->s->tokens.regtile;
    int all = NOTHING;

    for (Ref r = 1; r < x->g->len; r++) {
        if (!is_computed(x, r) || !token_sums_parts(x->s, r)
            || x->level[r] != level + 1)
            continue;
        int at = all;
        if (at == NOTHING || x->g->n[r].axes & ~regtile) {
            at = x->s->ninsts;
            inst_new(x, K_PARTIAL);
        }
        all = x->g->n[r].axes & ~regtile ? all : at;
        program_node(x, &x->s->inst[at], r, false);
        writes(x, &x->s->inst[at], value_of(x, r, LAY_PARTIAL));
    }
}

/* What has an instruction of its own. A solve is done where its right-hand side
 * is copied to. */
static void select_own(Tokens *x, int level, bool before)
{
    for (Ref r = 1; r < x->g->len; r++) {
        if (!is_computed(x, r) || x->taken[r] || x->op[r] == K_MAP
            || x->level[r] != level
            || is_before(x, r) != before)
            continue;
        KInst *k = inst_new(x, (KOp)x->op[r]);
        program_add(x, k, r);
        writes(x, k, value_of(x, r, LAY_FLAT));
        if (x->op[r] == K_SOLVE)
            writes(x, k, value_of(x, r, LAY_PARTIAL));
        x->taken[r] = 1;
    }
}

static void select_maps(Tokens *x, int level, bool before, bool regtile)
{
    for (Ref r = 1; r < x->g->len; r++)
        if (is_of_program(x, r, r, before) && x->level[r] == level
            && is_regtile(x->s, r) == regtile)
            select_map(x, r, before);
    select_own(x, level, before);
}

static bool is_read(const Tokens *x, Ref r)
{
    bool any = is_next(x, r) || is_output(x, r);
    for (int i = 0; i < x->s->k->nnodes && !any; i++)
        for (int j = 0; j < 4; j++)
            any |= x->g->n[x->s->k->node[i]].a[j] == r;
    return any;
}

/* Of inputs that some instruction reads. */
static void select_load(Tokens *x, Ref r, bool before, bool large)
{
    int v = value_of(x, r, layout_of(x, r));
    if (before || has_two_places(x->s, &x->s->value[v]) != large)
        writes(x, inst_new(x, K_LOAD), v);
}

/* The first level that reads what comes from memory. */
static int first_read(const Tokens *x, Ref r)
{
    int least = x->deepest;
    for (Ref u = 1; u < x->g->len; u++)
        for (int i = 0; i < 4 && is_computed(x, u); i++)
            if (x->g->n[u].a[i] && token_shown(x->s, x->g->n[u].a[i]) == r
                && !is_before(x, u) && x->level[u] < least)
                least = x->level[u];
    return least;
}

/* Whether it comes from memory for each item. */
static bool is_brought(const Tokens *x, Ref r)
{
    const Node *n = &x->g->n[r];
    return (n->op == OP_input && x->has[r] && n->timed)
        || (token_found(x->s, r) && is_read(x, r));
}

/* Of a chunk, what that level reads first: it has its place from then on. */
static void load_level(Tokens *x, int level)
{
    for (Ref r = 1; r < x->g->len; r++)
        if (is_brought(x, r) && first_read(x, r) == level)
            select_load(x, r, false, true);
}

static void select_loads(Tokens *x, bool before, bool large)
{
    for (int i = 0; i < x->g->nin; i++) {
        Ref r = x->g->in[i].node;
        if (x->has[r] && is_before(x, r) == before)
            select_load(x, r, before, large);
    }
}

static void select_found(Tokens *x, bool large)
{
    for (Ref r = 1; r < x->g->len; r++)
        if (token_found(x->s, r) && is_read(x, r))
            select_load(x, r, false, large);
}

/* Whether it is there when that level is done. */
static bool is_there(const Tokens *x, Ref r, int level)
{
    return (is_computed(x, r) ? x->level[r]
            : is_brought(x, r) ? first_read(x, r) : 0) <= level;
}

/* What is kept for kernels behind: states as the token finds them; what no
 * program keeps, up to that level. */
static void select_kept(Tokens *x, bool states, int level)
{
    for (Ref r = 1; r < x->g->len; r++) {
        Ref b = token_shown(x->s, r);
        bool done = !x->w->stores[r] || !x->has[r]
                 || (x->g->n[r].op == OP_state) != states
                 || !is_there(x, b, level);
        for (int i = 0; i < x->s->ninsts && !done; i++) {
            const KInst *k = &x->s->inst[i];
            done = k->op == K_MAP ? keeps_from(x, k, r)
                 : k->op == K_STORE && k->nnodes && k->node[0] == r;
        }
        if (done)
            continue;
        KInst *k = inst_new(x, K_STORE);
        k->node = ctx_alloc(x->s->c, sizeof *k->node);
        k->node[k->nnodes++] = r;
        if (!is_number(x, b))
            reads(x, k, value_of(x, b, layout_of(x, b)));
    }
}

static void select_outputs(Tokens *x, int level)
{
    for (int i = 0; i < x->g->nout; i++) {
        Ref r = x->g->out[i].node, b = token_shown(x->s, r);
        bool done = !x->w->wants_out[i] || !is_there(x, b, level);
        for (int n = 0; n < x->s->ninsts && !done; n++) {
            const KInst *k = &x->s->inst[n];
            done = k->op == K_MAP ? stores_from(x, k, i)
                 : k->op == K_STORE && k->index == i;
        }
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

/* Of chunks, whose states are large: whether it lies where no state does. */
static bool is_apart(const Tokens *x, Ref b)
{
    return has_rows(x->s) && x->g->n[b].op != OP_state;
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
            if (round == 0 && is_apart(x, b))
                continue;
            KInst *k = inst_new(x, K_CARRY);
            k->index = (int16_t)i;
            if (is_apart(x, b)) {
                if (!is_number(x, b))
                    reads(x, k, value_of(x, b, LAY_FLAT));
                writes(x, k, value_of(x, r, LAY_FLAT));
            } else if (round == 0) {
                if (!is_number(x, b))
                    reads(x, k, value_of(x, b, LAY_FLAT));
                writes(x, k, value_of(x, r, LAY_PARTIAL));
            } else {
                reads(x, k, value_of(x, r, LAY_PARTIAL));
                writes(x, k, value_of(x, r, LAY_FLAT));
            }
        }
}

/* ---- all of it ---- */

static void find_nodes(Tokens *x)
{
    const Schedule *s = x->s;
    size_t n = s->g->len;

    x->has = ctx_alloc(s->c, n);
    x->inlined = ctx_alloc(s->c, n);
    x->threads = ctx_alloc(s->c, n);
    x->beside = ctx_alloc(s->c, n);
    x->others = ctx_alloc(s->c, n);
    x->line = ctx_alloc(s->c, n);
    x->before = ctx_alloc(s->c, n);
    x->taken = ctx_alloc(s->c, n);
    x->op = ctx_alloc(s->c, n);
    x->level = ctx_alloc(s->c, n * sizeof *x->level);
    for (int i = 0; i < s->k->nnodes; i++) {
        Ref r = s->k->node[i];
        x->has[r] = 1;
        for (int a = 0; a < 4; a++)
            x->has[s->g->n[r].a[a]] |= op_is(s->g->n[s->g->n[r].a[a]].op,
                                             GIVEN);
    }
}

/* What each item has; of chunks, what a level needs is there from then on, and
 * what is to be stored goes out behind it. */
static void select_item(Tokens *x)
{
    bool rows = has_rows(x->s);

    for (int large = 0; large < 2 && !rows; large++) {
        select_loads(x, false, large);
        select_found(x, large);
    }
    select_kept(x, true, x->deepest);
    for (int i = 0; i <= x->deepest; i++) {
        if (rows)
            load_level(x, i);
        select_maps(x, i, false, false);
        select_partials(x, i);
        select_maps(x, i, false, true);
        if (!rows)
            continue;
        select_kept(x, false, i);
        select_outputs(x, i);
    }
    select_kept(x, false, x->deepest);
    select_outputs(x, x->deepest);
    carry_states(x);
}

bool schedule_tokens(Schedule *s, const KernelWish *w)
{
    enum { THREADS = 128, MANY = 512, MOST_REGS = 255 };
    Tokens x = { .s = s, .w = w, .g = s->g };

    s->ext = graph_extents(s->c, s->g);
    s->in = w->in;
    s->stored16 = w->stored16;
    s->tokens.rows = s->g->chunk <= 1 ? 1
        : (s->g->chunk + ROW_BLOCK - 1) / ROW_BLOCK * ROW_BLOCK;
    s->tokens.threads = has_rows(s) ? MANY : THREADS;
    find_nodes(&x);
    s->why = flat_fault(s, w);
    if (s->why)
        return false;
    s->tokens.single = w->single;
    schedule_token_slices(s);
    for (Ref r = 1; r < s->g->len; r++)
        x.op[r] = (uint8_t)(is_computed(&x, r) ? flat_op(s, r) : K_MAP);
    find_factors(&x);
    if (s->p->nkernels == 1 && !has_rows(s))
        schedule_regtile(s, w);         /* whose threads are the module's */
    else
        s->resident = has_rows(s) ? 1 : 4;
    find_before(&x);
    find_vector_sums(&x);
    find_inlined(&x);
    find_levels(&x);
    find_lines(&x);
    begin_states(&x, K_BEGIN);
    select_loads(&x, true, false);
    for (int i = 0; i <= x.deepest; i++)
        select_maps(&x, i, true, false);
    s->tokens.first = s->ninsts;
    select_item(&x);
    begin_states(&x, K_END);
    s->warps[KR_MATRIX] = (uint8_t)(s->tokens.threads / WARP_LANES);
    if (s->why)
        return false;
    flat_places(s);
    flat_barriers(s);
    int threads = s->resident * s->tokens.threads;
    int regs = s->target->regs / threads / s->target->reg_step
             * s->target->reg_step;
    s->regs[0] = s->regs[1] = regs < MOST_REGS ? regs : MOST_REGS;
    s->why = schedule_check_tokens(s);
    return !s->why;
}

Schedule *schedule_plain(Ctx *c, const KernelWish *w, const Target *t)
{
    KernelWish plainly = *w;
    Schedule *s = schedule_new(c, w, t);

    plainly.plainly = true;
    schedule_extents(s, 1);
    schedule_tokens(s, &plainly);
    return s;
}
